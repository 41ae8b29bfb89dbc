"""Access: which users may attach, where feeds are found, and what killed servers leave there."""
