"""The command line: each command, its errors and its output. Those that watch feeds: observing."""
