"""Minimisers of the FedFisher objective.

Each starts from the mean of the clients, unless it says otherwise, and refuses settings that are not positive by an
InputError. With a `score` it returns the iterate of the highest score, and without one the last iterate.
"""
