"""What tests have in common: child processes, loaders, and checks of what arrived."""
