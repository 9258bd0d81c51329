"""The layers that can be stacked on an iterator, one a file."""
