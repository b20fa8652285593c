"""The jobs of a federation: data, partition, initial weights, client training, statistics, sending, aggregation."""
