"""What README, guide and examples show works, and their links lead somewhere."""
