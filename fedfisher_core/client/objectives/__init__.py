"""Local objectives, one a file: what a client minimises."""
