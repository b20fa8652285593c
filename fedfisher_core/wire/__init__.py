"""What really crosses the network: quantisation, low rank, bit-packed payloads, counted."""
