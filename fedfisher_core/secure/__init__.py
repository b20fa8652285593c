"""Secure aggregation: the server learns the sum of what clients upload, and nothing else of it."""
