"""What crosses the network, counted: quantisation, low rank, bit-packed payloads."""
