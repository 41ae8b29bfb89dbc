"""Loaders that raise, hang, change their batches or are unusual, and what consumers are told."""
