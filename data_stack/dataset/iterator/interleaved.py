"""Samples of several iterators in turn."""
