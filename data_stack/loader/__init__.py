"""Which samples, in which order, in batches."""
