"""Jobs, their keys, and what is missing of a plan."""
