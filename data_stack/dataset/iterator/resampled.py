"""Samples of an iterator drawn with replacement."""
