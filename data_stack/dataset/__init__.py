"""Samples: the iterator contract, what can be stacked on an iterator, splits, encoders, reports, factories."""
