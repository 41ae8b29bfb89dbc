"""The demonstration: the same training jobs with a loader each, then on one feed.

Run it with ``feedline demo``. It makes its own data, measures both halves on this
machine, and leaves nothing behind. Nothing else in the package depends on it. Its processes are
started, measured and shown by ``feedline._measurement``.

==============  ==========================================================================
``command``     the steps
``half``        one half, from the start of its processes to its measurements
``images``      the JPEGs, the dataset over them, and the one loader that both halves use
``job``         one training process
``server``      the one process that loads, in the second half
==============  ==========================================================================
"""
