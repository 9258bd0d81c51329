"""Parquet datasets with tensors: their schema, codecs, filters."""

from data_stack.exception import MissingDependencyError
from data_stack.util.lazy import attach_stub

try:  # here, and not in each of the modules
    import pyarrow  # noqa: F401
except ImportError as error:
    raise MissingDependencyError("reading and writing Parquet", "pyarrow", "parquet") from error

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
