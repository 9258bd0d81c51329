"""Samples of an iterator with columns that went through encoders."""
