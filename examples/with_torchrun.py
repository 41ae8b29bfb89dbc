"""Data-parallel training on the feed of `serve_imagefolder.py`: its ranks share each epoch.

torchrun --standalone --nproc-per-node 2 examples/with_torchrun.py 32     # each rank's batch size
"""

import sys

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

import feedline

distributed.init_process_group("gloo")
batch_size = int(sys.argv[1]) if sys.argv[1:] else 24
# Takes the place of a DistributedSampler: every sample once, as many batches for each rank.
feed = feedline.attach("images", batch_size=batch_size, shard="auto")
model = DistributedDataParallel(nn.Sequential(nn.Flatten(), nn.Linear(3 * 64 * 64, 2)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for epoch in range(3):
    samples = 0
    for images, labels in feed:
        loss = nn.functional.cross_entropy(model(images / 255 - 0.5), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        samples += len(images)
    rank, steps = distributed.get_rank(), len(feed)
    print(f"epoch {epoch}, rank {rank}: {samples} samples in {steps} steps, loss {loss.item():.3f}")

distributed.destroy_process_group()
