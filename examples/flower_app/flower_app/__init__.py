"""FedFisher in Flower, on the embedded digits."""
