"""Matching the hidden units of several networks: optimal transport, a Bayesian model, common optima."""
