"""Faults: real servers and consumers that are killed, stopped, starved and confused.

    judge.py             what a consumer may see under each policy: pure, and tested by itself
    consumer_process.py  the inside of a consumer: reads at random, has every batch judged, reports
    points.py            the fault points of the Rust code, and what it takes to pass each
    scenario.py          a server and consumers around one fault point
    schedule.py          random actions from a seed; __main__.py runs them for as long as one likes

    test_*.py            each fault by itself, and a short slice of the random schedules

A child started with `fault="server:claimed:20:kill"` runs on a build of its own (`make faults`);
the ordinary extension has no fault code. `make chaos SECS=600` runs random schedules under every
policy; a failure prints its seed and the command that replays it. How long it took to recover or to
report is in a table at the end of the run.
"""
