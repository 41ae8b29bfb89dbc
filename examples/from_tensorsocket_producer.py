"""A producer as it is written for TensorSocket: only its import is new.

python examples/from_tensorsocket_producer.py
python examples/from_tensorsocket_consumer.py 16     # in other terminals, as often as you like
"""

import torch
from torch.utils.data import DataLoader, TensorDataset

from feedline.tensorsocket import TensorProducer  # was: from tensorsocket import TensorProducer

EPOCHS = 3

images = torch.rand(1000, 3, 32, 32)
labels = torch.arange(1000) % 10
data_loader = DataLoader(TensorDataset(images, labels), batch_size=32, shuffle=True)

# A long rubber band: a consumer that starts late still gets all of the running epoch.
producer = TensorProducer(data_loader, port=5555, rubber_band_pct=1.0)

for epoch in range(EPOCHS):
    for _ in producer:
        pass
    print(f"epoch {epoch}: all {len(producer)} batches are on their way", flush=True)
producer.join()
print("every consumer has read them")
