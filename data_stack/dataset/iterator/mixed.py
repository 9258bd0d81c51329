"""Samples of several iterators in stated proportions."""
