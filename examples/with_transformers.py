"""The Trainer of transformers on two shared feeds, with a model that is made up on the spot.

python examples/with_transformers.py & python examples/with_transformers.py & wait     # two jobs
"""

import tempfile

import torch
from torch.utils.data import DataLoader
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

import feedline


def make_loader(sentences: int) -> DataLoader[dict[str, torch.Tensor]]:
    """Sentences of 12 made-up words; the label says whether the first is among the rest."""
    words = torch.randint(20, (sentences, 12), generator=torch.Generator().manual_seed(sentences))
    found = (words[:, 1:] == words[:, :1]).any(1).long()
    rows = [{"input_ids": x, "labels": y} for x, y in zip(words, found, strict=True)]
    return DataLoader(rows, batch_size=40, shuffle=True)  # type: ignore[arg-type]


if __name__ == "__main__":
    config = BertConfig(
        vocab_size=20,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        num_labels=2,
    )
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder,
            num_train_epochs=2,
            per_device_eval_batch_size=50,
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
        )
        trainer = Trainer(BertForSequenceClassification(config), arguments)
        train = feedline.share(lambda: make_loader(640), "words", batch_size=32, history=1.0)
        val = feedline.share(lambda: make_loader(100), "words-val", batch_size=50, replay=True)
        trainer.get_train_dataloader = lambda: trainer.accelerator.prepare(train)
        trainer.get_eval_dataloader = lambda *_: trainer.accelerator.prepare(val)
        steps = trainer.train().global_step
        print(f"{steps} steps, validation loss {trainer.evaluate()['eval_loss']:.3f}")
