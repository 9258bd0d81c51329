"""Samples of an iterator, kept in a stored resource once they were read."""
