"""A training script as it is written for TensorSocket: only its import is new.

python examples/from_tensorsocket_consumer.py 16     # its batch size; see the producer's script
"""

import sys

import torch
from torch import nn

from feedline.tensorsocket import TensorConsumer  # was: from tensorsocket import TensorConsumer

EPOCHS = 3
torch.set_num_threads(1)  # several of these share the machine

data_loader = TensorConsumer(port=5555, batch_size=int(sys.argv[1]) if sys.argv[1:] else 64)
model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for epoch in range(EPOCHS):
    samples = 0
    for _batch_idx, (inputs, targets) in enumerate(data_loader):
        loss = nn.functional.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        samples += len(inputs)
    print(f"epoch {epoch}: {samples} samples in {len(data_loader)} batches, loss {loss.item():.3f}")
