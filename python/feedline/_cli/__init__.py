"""The commands that need Python: ``serve`` and ``bench``. Their options are parsed in Rust.

===============  ===========================================================================
``maker``        from ``FILE.py:make_loader`` to a loader
``arguments``    ``--arg KEY=VALUE``, and whether a function takes it
``failure``      what a command fails with, and how that is told
``serve``        ``feedline serve``
``progress``     what it shows while it runs: numbers in, words out
``screen``       lines on stderr, and a last one that is drawn over
``signals``      Ctrl-C and its like, heard whatever the loader does
``descendants``  ending what the loader started
``bench``        ``feedline bench``
===============  ===========================================================================
"""
