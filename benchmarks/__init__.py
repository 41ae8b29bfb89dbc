"""How fast Feedline is, beside what else one could use, in one run. Start with `make bench`."""
