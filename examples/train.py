"""One training job on the feed of `serve_imagefolder.py`; start it as often as you like.

python examples/train.py 64     # its batch size, whatever the server's or another job's is
"""

import sys

import torch
from torch import nn

import feedline

batch_size = int(sys.argv[1]) if sys.argv[1:] else 48
feed = feedline.attach("images", batch_size=batch_size)
model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 64 * 64, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for epoch in range(3):
    samples = 0
    for images, labels in feed:
        loss = nn.functional.cross_entropy(model(images / 255 - 0.5), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        samples += len(images)
    print(f"epoch {epoch}: {samples} samples in {len(feed)} batches, loss {loss.item():.3f}")
