"""Regression on a line by clients whose inputs overlap or not: the toy of FedFish's Section 5.1 (Figure 2)."""
