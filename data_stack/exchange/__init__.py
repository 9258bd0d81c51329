"""Conversions between iterators and the data of other libraries."""
