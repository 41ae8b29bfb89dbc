"""Keras on a shared loader, with torch or JAX underneath.

KERAS_BACKEND=torch python examples/with_keras.py      # as often as you like
KERAS_BACKEND=jax python examples/with_keras.py        # at the same time, on the same feed
"""

import keras
import torch
from torch.utils.data import DataLoader, TensorDataset

import feedline


def make_loader() -> DataLoader[tuple[torch.Tensor, ...]]:
    images = torch.rand(1000, 64)
    return DataLoader(TensorDataset(images, images.argmax(1)), batch_size=50, shuffle=True)


feed = feedline.share(make_loader, "keras-example", batch_size=32, format="torch")

model = keras.Sequential([keras.layers.Dense(64, activation="relu"), keras.layers.Dense(64)])
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(optimizer="adam", loss=loss, metrics=["accuracy"])
history = model.fit(feed, epochs=3, verbose=2, shuffle=False)

losses = ", ".join(f"{value:.3f}" for value in history.history["loss"])
print(f"keras on {keras.backend.backend()}: 3 epochs of 1000 samples, loss {losses}")
