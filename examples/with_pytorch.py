"""A plain PyTorch script whose loader is shared: start it as often as you like, even at once.

python examples/with_pytorch.py 1 & python examples/with_pytorch.py 2 & wait     # two seeds
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import feedline


class Rings(Dataset[tuple[torch.Tensor, int]]):
    """Points around the origin: are they within the unit circle? Stands for costly decoding."""

    def __len__(self) -> int:
        return 2000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        point = torch.randn(2, generator=torch.Generator().manual_seed(index))
        return point, int(point.norm() < 1)


torch.manual_seed(int(sys.argv[1]) if sys.argv[1:] else 0)
# The one line: before, it was loader = DataLoader(Rings(), batch_size=64, shuffle=True)
loader = feedline.share(lambda: DataLoader(Rings(), 64, shuffle=True), "rings", batch_size=64)

model = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
for epoch in range(3):
    right = samples = 0
    for points, inside in loader:
        scores = model(points)
        optimizer.zero_grad()
        nn.functional.cross_entropy(scores, inside).backward()
        optimizer.step()
        right += int((scores.argmax(1) == inside).sum())
        samples += len(points)
    print(f"epoch {epoch}: {samples} samples, {right / samples:.0%} right")
print(f"served by process {loader.stats()['server_pid']}")
