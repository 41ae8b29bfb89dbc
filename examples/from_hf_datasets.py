"""A dataset of Hugging Face's, prepared once for all training jobs; start it as often as you like.

python examples/from_hf_datasets.py
"""

import datasets
import torch
from torch.utils.data import DataLoader

import feedline


def make_loader() -> DataLoader[dict[str, torch.Tensor]]:
    """Called once, by the server; `datasets.load_dataset(...)` goes here."""
    rows = {"text": ["word " * (number % 7) for number in range(500)], "label": range(500)}
    dataset = datasets.Dataset.from_dict(rows)
    # The costly part: done once, however many jobs there are.
    dataset = dataset.map(lambda row: {"length": len(row["text"])}, remove_columns="text")
    return DataLoader(dataset.with_format("torch"), batch_size=32, shuffle=True)


if __name__ == "__main__":
    feed = feedline.share(make_loader, "hf-example", batch_size=48)
    for epoch in range(2):
        labels = [label for batch in feed for label in batch["label"].tolist()]
        print(f"epoch {epoch}: {len(labels)} samples, {len(set(labels))} different ones")
