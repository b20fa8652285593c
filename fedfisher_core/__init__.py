"""The science of one-shot federated learning: data, clients, Fishers, wire format, methods, measures."""
