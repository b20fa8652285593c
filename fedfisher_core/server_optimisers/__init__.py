"""What a server makes of an aggregate before the next round, one optimiser a file."""
