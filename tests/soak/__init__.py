"""The process tests again and again, on a machine that is busy and stops their processes at random.

    __main__.py   the rounds: one pytest each, in an order of its own, side by side
    disturb.py    busy processes, and stops of up to 0.7 s
    record.py     a plugin for pytest: the order of a round, and a line for each failure
    summary.py    what failed, where, and how to run that round again: pure

`make soak ROUNDS=20` is for the night. A test that fails here and not in `make test` depends on
speed, or has found a bug that does. The seed is printed: a round with the same seed has the same
order and the same sequence of stops, though not at the same moments.
"""
