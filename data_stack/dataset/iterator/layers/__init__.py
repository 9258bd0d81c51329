"""The layers that can be stacked on an iterator, those of one idea in one file."""
