"""Clients: local training, and what a client may upload."""
