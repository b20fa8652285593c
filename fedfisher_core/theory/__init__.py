"""The theory of FedFisher on two-layer networks, measured (Section 3, Figure 1)."""
