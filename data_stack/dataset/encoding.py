"""What ``iterator.encode``, ``map_classes`` and ``one_hot`` do: iterators whose columns go through encoders."""
