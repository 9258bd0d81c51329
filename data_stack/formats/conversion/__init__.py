"""Conversion of datasets from one format to another, in a stream that is verified afterwards."""

from data_stack.util.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
