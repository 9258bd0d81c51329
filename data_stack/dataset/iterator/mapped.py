"""A function of each sample of an iterator."""
