"""Observing feeds: top, dashboard, metrics, and the numbers that a server reports."""
