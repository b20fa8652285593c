"""Aggregation methods, one a file, and the references that they are compared with."""
