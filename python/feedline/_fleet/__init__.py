"""Processes that are started to be measured: what the demo and ``feedline bench`` share.

==============  ========================================================================
``children``    starting, listening to and ending them
``part``        measuring jobs that run at the same time, for a while
``measure``     CPU-seconds and memory of them all, and what cores there are
``comparison``  the table
``screen``      the progress bar
==============  ========================================================================
"""
