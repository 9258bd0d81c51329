"""The same data again: lock files, recipes, plans, differences, reports on prepared datasets."""

from data_stack.util.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
