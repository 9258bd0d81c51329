"""Translates the errors of reading Arrow files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pyarrow as pa

from data_stack.exception import DatasetFileCorruptError, DataStackError
from data_stack.io.parsing import raise_if_of_system


@contextlib.contextmanager
def reading_arrow(name: str) -> Iterator[None]:
    """Name the file in the errors of a block that reads it.

    Other errors of data_stack and MemoryError pass as they are.

    Args:
        name: the name of the file.

    Raises:
        StorageError: the operating system could not read the file.
        DatasetFileCorruptError: the block raised one, or an error of pyarrow.
    """
    try:
        yield
    except DatasetFileCorruptError as error:
        raise _damage_error(name, error) from error
    except (DataStackError, MemoryError):
        # pyarrow's error for a lack of memory says nothing about the file.
        raise
    except (pa.ArrowException, OSError, ValueError, TypeError, OverflowError) as error:
        raise_if_of_system(error, repr(name))
        raise _damage_error(name, error) from error


def _damage_error(name: str, error: Exception) -> DatasetFileCorruptError:
    return DatasetFileCorruptError(
        f"{name!r} is damaged or truncated, or not an Arrow file: {error!s:.300}"
    )
