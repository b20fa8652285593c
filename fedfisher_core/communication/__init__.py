"""What crosses the network: encoded uploads, budgets, and secure sums."""
