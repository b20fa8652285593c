"""Differential privacy of clients: training and Fishers that hide whether any one example was there."""
