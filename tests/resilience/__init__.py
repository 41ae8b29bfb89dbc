"""Processes that die, stop, fork or restart, and machines that run out of something."""
