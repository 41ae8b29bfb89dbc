"""What arrives: every sample once, in its structure and type, in memory that stays as it was."""
