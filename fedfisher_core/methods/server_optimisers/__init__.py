"""How the server goes on from an aggregate to the next round, one optimiser a file."""
