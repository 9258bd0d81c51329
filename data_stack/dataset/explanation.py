"""What ``iterator.explain`` does: a stack of iterators as a tree, with lengths, costs and licences."""
