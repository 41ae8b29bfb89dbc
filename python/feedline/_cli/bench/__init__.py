"""``feedline bench``: what sharing would bring to one's own loader, on this machine.

The same loader for one job alone, for N jobs with a loader each, for N jobs on one feed. The jobs
only take batches, so what is measured is the loading: an upper bound of what sharing brings to jobs
that compute too.

================  ==========================================================================
``command``       the steps, what is printed, exit codes
``measurements``  what is measured in which order; the processes of each part
``job``           a process that takes batches
``server``        the process that loads for all
``batches``       samples in a batch; a loader that can be iterated again and again
``reporting``     how these processes report
``verdict``       what the numbers mean, in words and in money
================  ==========================================================================
"""

from feedline._cli.bench.command import run

__all__ = ["run"]
