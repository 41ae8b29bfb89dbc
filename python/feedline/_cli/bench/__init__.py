"""``feedline bench``: what sharing would bring to one's own loader, on this machine.

The same loader for one job alone, for N jobs with a loader each, for N jobs on one feed. The jobs
only take batches, so what is measured is the loading: an upper bound of what sharing brings to jobs
that compute too.

===========  ===============================================================================
``command``  the order of events, what is printed, exit codes
``parts``    what is measured in which order; the processes of each part
``job``      a process that takes batches
``server``   the process that loads for all
``batches``  how many samples a batch has; a loader that can be gone over again and again
``verdict``  from numbers to words, and to money
===========  ===============================================================================
"""

from feedline._cli.bench.command import run

__all__ = ["run"]
