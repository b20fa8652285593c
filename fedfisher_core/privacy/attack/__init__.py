"""Model inversion with a generative prior: what a server can reconstruct of a client's images from what it sees."""
