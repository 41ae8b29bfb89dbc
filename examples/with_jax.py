"""A JAX training loop on a shared loader of NumPy arrays; start it as often as you like.

python examples/with_jax.py 64     # its batch size
"""

import sys
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

import feedline

WIDTH = 64  # × 4 bytes: a sample's length is a multiple of 64 bytes, so JAX copies nothing


class Points:
    """Any iterable will do; each `iter()` is one epoch."""

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        rng = np.random.default_rng()
        for _ in range(10):
            x = rng.standard_normal((100, WIDTH), dtype=np.float32)
            yield x, x.sum(axis=1)


@jax.jit
def step(weights: jax.Array, x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
    loss, gradient = jax.value_and_grad(lambda w: jnp.mean((x @ w - y) ** 2))(weights)
    return weights - 0.1 * gradient, loss


batch_size = int(sys.argv[1]) if sys.argv[1:] else 64
feed = feedline.share(Points, "jax-example", batch_size=batch_size, format="jax", samples=1000)
weights = jnp.zeros(WIDTH)
for epoch in range(3):
    samples = 0
    for x, y in feed:
        weights, loss = step(weights, x, y)
        samples += len(x)
    print(f"epoch {epoch}: {samples} samples, loss {loss:.4f}")
