"""Converts between samples and tables of Arrow, pandas, polars and Hugging Face."""

from data_stack.exception import MissingDependencyError

try:  # Checked once for all modules of the package.
    import pyarrow  # noqa: F401
except ImportError as error:
    raise MissingDependencyError(
        "from_csv(), to_arrow() and the like", "pyarrow", "parquet"
    ) from error
