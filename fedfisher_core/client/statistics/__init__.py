"""Statistics that a client may upload, one a file."""
