"""Stacks of iterators as plain data: their recipe, its fingerprint, and the way back."""
