"""A tf.data pipeline, run once for all training jobs, which need no TensorFlow themselves.

python examples/from_tfdata.py     # as often as you like
"""

from typing import Any

import feedline


def make_loader() -> Any:
    """Called once, by the server: the only process that imports TensorFlow."""
    import tensorflow as tf

    numbers = tf.data.Dataset.range(500).shuffle(500)
    return numbers.map(lambda n: {"image": tf.fill([8, 8], n), "label": n}).batch(32)


if __name__ == "__main__":
    # Arrays of NumPy's; format="torch" or "jax" gives others, without a copy.
    feed = feedline.share(make_loader, "tfdata-example", batch_size=48)
    for epoch in range(2):
        labels = [label for batch in feed for label in batch["label"].tolist()]
        print(f"epoch {epoch}: {len(labels)} samples, {len(set(labels))} different ones")
