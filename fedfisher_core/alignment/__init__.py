"""Aligning the hidden units of networks by optimal transport."""
