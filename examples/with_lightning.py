"""Lightning on two shared feeds, one to train and one to validate with.

python examples/with_lightning.py & python examples/with_lightning.py & wait     # two jobs
"""

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import feedline


class Model(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(10, 1)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        x, y = batch
        return nn.functional.mse_loss(self.layer(x), y)

    def validation_step(self, batch: list[torch.Tensor], _: int) -> None:
        x, y = batch
        self.log("loss", nn.functional.mse_loss(self.layer(x), y), batch_size=len(x))


def make_loader(samples: int) -> DataLoader[tuple[torch.Tensor, ...]]:
    x = torch.randn(samples, 10)
    return DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=50, shuffle=True)


if __name__ == "__main__":
    # history=1.0 keeps the running epoch, so that a job may go on from a checkpoint in its middle.
    train = feedline.share(lambda: make_loader(1000), "sums", batch_size=32, history=1.0)
    # replay=True loads the validation set once, for all jobs and epochs.
    val = feedline.share(lambda: make_loader(200), "sums-val", batch_size=100, replay=True)
    trainer = lightning.Trainer(
        max_epochs=3, accelerator="cpu", logger=False, enable_checkpointing=False
    )
    trainer.fit(Model(), train, val)
    print(f"{trainer.global_step} steps, validation loss {trainer.callback_metrics['loss']:.3f}")
