"""Finding which units of several clients' layers are the same."""
