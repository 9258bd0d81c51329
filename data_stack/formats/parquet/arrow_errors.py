"""Makes errors of ours of the errors of pyarrow."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import pyarrow as pa

from data_stack.exception import DatasetFileCorruptError, DataStackError, StorageError


@contextlib.contextmanager
def reading_parquet(name: str) -> Iterator[None]:
    """Raise errors of pyarrow that occur while reading the file ``name`` as ours."""
    try:
        yield
    except (DataStackError, MemoryError):
        # Arrow's lack of memory is an ArrowException, too.
        raise
    except (pa.ArrowException, OSError, ValueError, OverflowError, NotImplementedError) as error:
        is_of_system = isinstance(error, OSError) and not isinstance(error, pa.ArrowException)
        errno = getattr(error, "errno", None)
        if is_of_system and errno is not None:
            raise StorageError(f"could not read {name}: {os.strerror(errno)}", errno) from error
        raise DatasetFileCorruptError(
            f"{name} is damaged or truncated, or not a Parquet file: {error!s:.300}"
        ) from error
