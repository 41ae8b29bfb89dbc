"""Processes that are started to be measured: what the demo and ``feedline bench`` share.

============  ==========================================================================
``children``  starting, listening to and ending them
``measure``   CPU-seconds and memory of them all, from ``/proc``
``screen``    the progress bar and the table
============  ==========================================================================
"""
