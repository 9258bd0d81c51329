"""The samples of an iterator in the order of a column's values."""
