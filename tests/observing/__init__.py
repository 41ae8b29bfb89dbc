"""How feeds are looked at: top, dashboard, metrics, and what a server tells of itself."""
