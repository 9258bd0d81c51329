"""All samples of an iterator, several times over."""
