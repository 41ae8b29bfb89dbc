"""Processes that are started to be measured: what the demo and ``feedline bench`` share.

===============  =======================================================================
``children``     starting them, reading their reports, ending them
``measurement``  measuring jobs that run at the same time, for a while
``usage``        CPU-seconds and memory of all of them, and the cores that there are
``end_signal``   how they learn that they should end
``comparison``   the table
``progress``     the progress bar
===============  =======================================================================
"""
