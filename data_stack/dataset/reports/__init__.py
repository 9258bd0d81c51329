"""Reports on iterators: distributions, statistics, duplicates, the tree of layers."""
