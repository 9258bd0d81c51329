"""Tables of Arrow, pandas, polars and Hugging Face, and of text files, as samples, and samples as such tables."""

from data_stack.exception import MissingDependencyError

try:  # here, and not in each of the modules
    import pyarrow  # noqa: F401
except ImportError as error:
    raise MissingDependencyError(
        "from_csv(), to_arrow() and the like", "pyarrow", "parquet"
    ) from error
