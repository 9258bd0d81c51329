"""The samples of an iterator for which a predicate is true."""
