"""A feed under the frameworks that people train with, and over the loaders that they have.

Run by `make test-frameworks`, in a venv of its own; `make test` leaves this folder out.
`test_NAME.py` also runs `examples/with_NAME.py`. Everything is tiny, on the CPU, and offline.
"""
