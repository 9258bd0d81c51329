"""Samples of an iterator, every class equally often."""
