"""From samples to samples: the iterator contract, layers, splits, encoders, recipes."""
