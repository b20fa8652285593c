"""Measures of a global model."""
