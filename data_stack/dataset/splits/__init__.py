"""Divisions of a dataset: the arithmetic, the parts as iterators, and how they are saved."""
