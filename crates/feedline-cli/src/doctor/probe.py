"""What `feedline doctor` asks of Python: a line in, a line of JSON out.

Needs nothing but Python at first.
"""

import importlib.metadata
import importlib.util
import json
import os
import platform
import sys
import time

# What imported modules print must not be taken for an answer.
answers = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)
BATCH = int(sys.argv[1])


def version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "unknown" if importlib.util.find_spec(name) else None


def versions():
    import feedline

    return {"feedline": feedline.__version__, "numpy": version("numpy")}


def torch():
    import torch

    names = []
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return {"version": torch.__version__, "gpus": names}


def read(form, name):
    import numpy

    import feedline

    sums, batches = [], 0
    began = time.perf_counter()
    with feedline.attach(name, batch_size=BATCH, timeout_secs=8, format=form) as feed:
        for batch in feed:
            words = numpy.asarray(batch).view(numpy.uint64)
            weights = numpy.arange(words.shape[1], dtype=numpy.uint64) * 2 + 1
            sums += (words * weights).sum(axis=1, dtype=numpy.uint64).tolist()
            batches += 1
    return {"sums": sums, "batches": batches, "secs": time.perf_counter() - began}


def answer(question, *words):
    if question == "python":
        return {
            "python": platform.python_version(),
            "executable": sys.executable,
            "torch": version("torch"),
        }
    if question == "versions":
        return versions()
    if question == "torch":
        return torch()
    return read(*words)


for line in sys.stdin:
    try:
        found = answer(*line.split())
    except BaseException as error:
        found = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(found), file=answers, flush=True)
