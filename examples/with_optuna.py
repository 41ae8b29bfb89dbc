"""Hyperparameter search on a shared loader; start it in several terminals to search in parallel.

python examples/with_optuna.py     # each process runs 5 trials of one study, kept in ./study.log
"""

import optuna
import torch
from optuna.storages.journal import JournalFileBackend
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import feedline


def make_loader() -> DataLoader[tuple[torch.Tensor, ...]]:
    images = torch.rand(2000, 64)
    return DataLoader(TensorDataset(images, images.argmax(1)), batch_size=50, shuffle=True)


def objective(trial: optuna.Trial) -> float:
    batch_size = trial.suggest_categorical("batch_size", [16, 32, 64])
    rate = trial.suggest_float("rate", 1e-4, 1.0, log=True)
    # history: a trial that begins in the middle of an epoch gets all of it.
    feed = feedline.share(make_loader, "optuna-example", batch_size=batch_size, history=1.0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    step = 0
    for _ in range(3):
        for images, labels in feed:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 10 == 0:
                trial.report(loss.item(), step)
                if trial.should_prune():
                    raise optuna.TrialPruned  # in mid-epoch: nobody else notices
    return loss.item()


def tell(study: optuna.Study, trial: optuna.trial.FrozenTrial) -> None:
    print(f"trial {trial.number} {trial.state.name.lower()} {trial.params}")


optuna.logging.set_verbosity(optuna.logging.WARNING)
study = optuna.create_study(
    study_name="example",
    storage=optuna.storages.JournalStorage(JournalFileBackend("study.log")),
    load_if_exists=True,
    pruner=optuna.pruners.MedianPruner(n_startup_trials=2),
)
study.optimize(objective, n_trials=5, callbacks=[tell])
