"""The commands that need Python: ``serve`` and ``bench``. Their options are parsed in Rust.

=============  ===========================================================================
``maker``      from ``FILE.py:make_loader`` to a loader
``arguments``  ``--arg KEY=VALUE``, and whether a function takes it
``failure``    what a command fails with, and how that is told
``serve``      ``feedline serve``
``progress``   what it shows while it runs
``bench``      ``feedline bench``
=============  ===========================================================================
"""
