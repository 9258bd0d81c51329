"""Stacks of iterators as plain data, and the way back."""
