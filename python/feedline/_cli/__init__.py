"""The commands that need Python: ``serve`` and ``bench``. Their options are parsed in Rust.

===============  ===========================================================================
``maker``        from ``FILE.py:make_loader`` to a loader
``arguments``    ``--arg KEY=VALUE``, and whether a function takes it
``failure``      the errors of commands, and how they are reported
``serve``        ``feedline serve``
``progress``     what it shows while it runs: a server's numbers as text
``screen``       lines on stderr, and a status line that is redrawn
``signals``      Ctrl-C and similar, handled whatever the loader does
``descendants``  ending what the loader started
``bench``        ``feedline bench``
===============  ===========================================================================
"""
