"""Samples of other libraries as iterators, and iterators as data of other libraries."""
