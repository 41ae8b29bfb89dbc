"""A feed as its users call it: arguments, len, epochs, threads; as DataLoader, as TensorSocket."""
