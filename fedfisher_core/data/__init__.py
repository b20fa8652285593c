"""Data: what can be loaded, and how it is split over clients."""
