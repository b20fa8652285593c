"""Speed and memory, each against a named alternative measured in the same run."""
