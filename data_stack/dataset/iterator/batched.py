"""Batches of an iterator's samples, as samples."""
