"""Who may attach, where feeds are found, and what killed servers leave there."""
