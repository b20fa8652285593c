"""The steps of a benchmark: each finds its artifact in the store, or computes and stores it."""
