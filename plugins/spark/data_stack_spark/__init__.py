"""Spark: preparations in its executors, datasets that it writes and reads, its DataFrames."""

from data_stack.util.lazy import attach_stub

# Names are imported on first use, as importing Spark's Python API takes a second.
__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
