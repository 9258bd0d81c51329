"""What can be told of an iterator: distributions, statistics, duplicates, the tree of its layers."""
