"""Distillation without the clients' data: one network learns on inputs that the server draws or generates."""
