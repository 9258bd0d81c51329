"""Samples with some of an iterator's columns, under other names, as tuples or as dicts."""
