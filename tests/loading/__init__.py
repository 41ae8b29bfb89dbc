"""Loaders that raise, hang, change their batches or are unusual, and which errors consumers get."""
