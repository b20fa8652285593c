"""Frozen numbers of what a version must be raised for: jobs, statistics, objectives, server optimisers and methods."""
