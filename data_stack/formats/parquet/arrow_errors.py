"""Translates the errors that pyarrow raises while it reads Parquet files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pyarrow as pa

from data_stack.exception import DatasetFileCorruptError, DataStackError
from data_stack.io.parsing import raise_if_of_system

#: The error of pyarrow before 26 at a missing value of a list of one size.
_MISSING_LIST = "Expected all lists to be of size"


@contextlib.contextmanager
def reading_parquet(name: str) -> Iterator[None]:
    """Translate errors of pyarrow in the block, which reads a file.

    Errors of data_stack and MemoryError pass as they are.

    Args:
        name: the name of the file for messages.

    Raises:
        StorageError: the operating system could not read the file.
        DatasetFileCorruptError: pyarrow could not read the content.
    """
    try:
        yield
    except (DataStackError, MemoryError):
        # pyarrow's error for a lack of memory is both a MemoryError and an ArrowException. It says
        # nothing about the file.
        raise
    except (pa.ArrowException, OSError, ValueError, OverflowError, NotImplementedError) as error:
        raise_if_of_system(error, name)
        advice = ""
        if _MISSING_LIST in str(error):
            advice = "; if it has missing values in lists of one size, install pyarrow>=26"
        raise DatasetFileCorruptError(
            f"{name} is damaged or truncated, or not a Parquet file: {error!s:.300}{advice}"
        ) from error
