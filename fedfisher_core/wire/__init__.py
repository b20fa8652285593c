"""What crosses the network: statistics as bytes."""
