"""The fault points of the Rust code: each step of a batch's life, and what it takes to come by."""

from __future__ import annotations

from typing import Any

SAMPLES = 600
RING = 60

# The larger batches make the ring grow.
GROWS = {"batch_size": 100}

SERVER: dict[str, tuple[int, dict[str, Any]]] = {
    "welcomed": (2, {}),
    "join_registered": (2, {}),
    "join_answered": (2, {}),
    "leave_registered": (2, {"leave_after": 3}),
    "epoch_begun": (3, {}),
    "before_next": (100, {}),
    "after_next": (100, {}),
    "claimed": (100, {}),
    "copying": (201, {}),
    "copied": (100, {}),
    "published": (100, {}),
    "announced": (100, {}),
    "epoch_ended": (2, {}),
    "ring_prepared": (2, GROWS),
    "ring_installed": (2, GROWS),
}
"""Server: when the point strikes, and the behaviour of a consumer that leads there."""

CONSUMER: dict[str, tuple[int, dict[str, Any]]] = {
    "attached": (1, {}),
    "join_sent": (1, {}),
    "joined": (1, {}),
    "about_to_sleep": (3, {}),
    "seen": (30, {}),
    "leased": (30, {}),
    "cut": (30, {"mode": "copy"}),
    "handed_out": (30, {}),
    "released": (3, {"slow_secs": 0.005}),
    "keeping": (3, {"keep": 8, "slow_secs": 0.005}),
    "kept": (3, {"keep": 8, "slow_secs": 0.005}),
    "ring_adopted": (1, GROWS),
    "epoch_over": (2, {}),
    "leaving": (2, {"leave_after": 3}),
    "left": (2, {"leave_after": 3}),
}
"""Consumer: when the point strikes, and its behaviour."""
