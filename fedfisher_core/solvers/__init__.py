"""Minimisers of the FedFisher objective."""
