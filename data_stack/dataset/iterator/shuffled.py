"""All samples of an iterator in an order that a seed decides."""
