"""Networks that clients train, one family a file."""
