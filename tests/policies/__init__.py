"""Who starts where and who waits for whom: joining, history, replay, skip, ranks, ring sizes."""
