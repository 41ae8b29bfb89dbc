"""The wheel: what is in it, and whether it works in an empty environment (`make wheel`)."""
