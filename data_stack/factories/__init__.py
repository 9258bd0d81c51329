"""From the code of a dataset to its prepared files."""
