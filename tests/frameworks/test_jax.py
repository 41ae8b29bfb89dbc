"""JAX over shared pages: no copy where the address allows it, and right while JAX reads it.

A JAX array is never written to, by anybody, so the lease under one must last as long as any array,
NumPy view or computation over it. JAX takes memory as it is only at addresses divisible by 64.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import feedline
from conftest import Start
from frameworks.conftest import RunTwice
from support import roles
from support.child import say
from support.loaders import EPOCH, content

SAMPLES = 6000
ALIGNED = 64  # bytes of a sample: every batch begins where JAX needs it to
ODD = 37


def serve(start: Start, width: int, *, turns: int = 10) -> None:
    """Serve numbered samples through a ring that an epoch goes round several times."""
    options: dict[str, Any] = {"loader_args": [SAMPLES, 100], "loader_options": {"width": width}}
    server = start(roles.serve, ring=SAMPLES // turns, samples=SAMPLES, **options)
    server.expect("ready")


def is_in_a_ring(array: Any) -> bool:
    address = array.unsafe_buffer_pointer()
    for line in Path("/proc/self/maps").read_text().splitlines():
        first, last = (int(end, 16) for end in line.split()[0].split("-"))
        if first <= address < last:
            return "memfd:feedline" in line
    return False


def is_right(batch: Any) -> bool:
    x, keys = np.asarray(batch[0]), np.asarray(batch[1])
    return bool((x == content(keys.astype(np.int64), x.shape[1])).all())


def count_copies(batch_size: int) -> None:
    import jax

    feed = feedline.attach("train", batch_size=batch_size, format="jax")
    keys: list[int] = []
    is_shared = []
    for batch in feed:
        assert all(isinstance(leaf, jax.Array) for leaf in batch)
        assert is_right(batch)
        keys.extend(np.asarray(batch[1]).tolist())
        is_shared.append(is_in_a_ring(batch[0]))
    say("read", keys=keys, is_shared=is_shared)


@pytest.mark.parametrize(("width", "batch_size"), [(ALIGNED, 7), (ODD, 50)])
def test_no_copy_where_the_address_allows_it(start: Start, width: int, batch_size: int) -> None:
    serve(start, width)
    read = start(count_copies, batch_size=batch_size).expect("read")
    assert read["keys"] == list(range(SAMPLES))
    # The first one is at the beginning of a page.
    assert read["is_shared"][0]
    assert all(read["is_shared"]) is (width == ALIGNED)


def keep_and_read_on() -> None:
    import jax
    import jax.numpy as jnp

    feed = feedline.attach("train", batch_size=50, format="jax")
    batches = iter(feed)
    kept = [next(batches)]
    is_shared = is_in_a_ring(kept[0][0])
    aliases = [jax.device_put(next(batches)), jax.tree.map(jnp.asarray, next(batches))]
    views = [jax.tree.map(np.asarray, next(batches))]
    reshaped = [jax.tree.map(lambda leaf: leaf.reshape(leaf.shape), next(batches))]
    rest = [is_right(batch) for batch in batches]
    still = [is_right(batch) for batch in (*kept, *aliases, *views, *reshaped)]
    first = [int(batch[1][0]) for batch in (*kept, *aliases, *views, *reshaped)]
    say("kept", rest=rest, still=still, first=first, is_shared=is_shared)


def test_what_is_kept_stays_as_it_was(start: Start) -> None:
    serve(start, ALIGNED)
    kept = start(keep_and_read_on).expect("kept")
    assert kept["is_shared"], "nothing was at stake"
    assert kept["rest"] == [True] * (SAMPLES // 50 - 5)
    assert kept["still"] == [True] * 5
    assert kept["first"] == [0, 50, 100, 150, 200]


def compute_behind() -> None:
    """Start computations, let go of their input at once, and check the results at the end."""
    import jax
    import jax.numpy as jnp

    @jax.jit
    def slowly(x: Any) -> Any:
        # What is read last must still be there after some milliseconds of other work.
        wide = jnp.ones((256, 256))
        for _ in range(40):
            wide = jnp.tanh(wide @ wide)
        return (x + wide.sum().astype(jnp.uint8) * 0).astype(jnp.uint32).sum(1)

    feed = feedline.attach("train", batch_size=50, format="jax")
    sums = []
    for x, _ in feed:
        sums.append(slowly(x))
        del x
    say("sums", sums=np.concatenate([np.asarray(part) for part in sums]).tolist())


def test_a_computation_outlives_the_loop_s_reference(start: Start) -> None:
    serve(start, ALIGNED, turns=30)
    expected = content(np.arange(SAMPLES), ALIGNED).astype(np.uint32).sum(1)
    assert start(compute_behind).expect("sums")["sums"] == expected.tolist()


def donate() -> None:
    import jax

    consume = jax.jit(lambda x: x * 0 + 1, donate_argnums=0)
    feed = feedline.attach("train", batch_size=50, format="jax", mode="readonly")
    rights = []
    for epoch in range(2):
        for batch in feed:
            rights.append(is_right(batch) and int(batch[1][0]) // EPOCH == epoch)
            consume(batch[0]).block_until_ready()
            assert batch[0].is_deleted()
    say("donated", rights=rights)


def test_a_donated_batch_is_not_written_to(start: Start) -> None:
    """A write would crash the process: its pages are read-only."""
    serve(start, ALIGNED)
    assert start(donate).expect("donated")["rights"] == [True] * (2 * SAMPLES // 50)


def test_the_example(run_twice: RunTwice) -> None:
    for output in run_twice("with_jax.py"):
        epochs = re.findall(r"epoch (\d): (\d+) samples", output)
        assert epochs == [(str(epoch), "1000") for epoch in range(3)], output
