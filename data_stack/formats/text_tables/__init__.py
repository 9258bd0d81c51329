"""Tables in text: CSV and JSON lines, read as Arrow tables in blocks of rows."""

from data_stack.exception import MissingDependencyError

# Checked once, for all modules of this package.
try:
    import pyarrow  # noqa: F401
except ImportError as error:
    raise MissingDependencyError("reading CSV and JSON lines", "pyarrow", "parquet") from error
