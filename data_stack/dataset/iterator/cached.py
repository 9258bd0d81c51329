"""Samples of an iterator, kept in bounded memory once they were read."""
