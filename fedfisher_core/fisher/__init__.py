"""The Fisher information of a client's model: its approximations and their algebra."""
