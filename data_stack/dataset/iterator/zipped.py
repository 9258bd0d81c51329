"""The columns of several iterators side by side."""
