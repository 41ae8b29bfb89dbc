"""Where consumers start, who waits for whom: joining, history, replay, skip, ranks, ring sizes."""
