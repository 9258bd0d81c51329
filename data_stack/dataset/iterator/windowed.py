"""Runs of consecutive samples of an iterator, as samples."""
