"""Values of the columns that are stored in the names of folders, such as ``day=2024-01-01``."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.parquet.codecs.times import is_instant
from data_stack.formats.parquet.files import NULL_PARTITION, ParquetFiles
from data_stack.formats.parquet.schema import Field
from data_stack.values.stacked_values import objects


def partition_column(field: Field, files: ParquetFiles) -> npt.NDArray[Any]:
    """Read a partition column from the names of folders.

    Args:
        field: of the column.
        files: of the dataset.

    Returns:
        The value of each file, shape ``(n_files,)``.

    Raises:
        DatasetFileCorruptError: the name of a folder is not a value of the field.
    """
    texts = [values.get(field.name) for values in files.partitions]
    with contextlib.suppress(ValueError, pa.ArrowException):
        return _parse(field, texts)
    # parse them one by one, to name the file
    for number, text in enumerate(texts):
        try:
            _parse(field, [text])
        except (ValueError, pa.ArrowException) as error:
            shown = NULL_PARTITION if text is None else text
            folder = f"{field.name}={shown:.60}"
            raise DatasetFileCorruptError(
                f"{files.name(number)}: the folder {folder!r} is not a value: {error}"
            ) from error
    return objects(texts)


def _parse(field: Field, texts: Sequence[str | None]) -> npt.NDArray[Any]:
    """Convert texts to values of a field, shape ``(len(texts),)``.

    Raises:
        ValueError, pyarrow.ArrowException: a text is not a value of the field.
    """
    type_ = field.arrow_type()
    if is_instant(type_):  # the names of folders are in UTC, without a zone
        type_ = pa.timestamp(type_.unit)
    cells = pa.array(texts, pa.string()).cast(type_)
    column = field.cells.column(field, cells, has_nulls=None in texts)
    return column.take(np.arange(len(texts)))
