"""Reads the columns whose values are the names of folders, such as ``day=2024-01-01``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.parquet.codecs.times import is_instant
from data_stack.formats.parquet.files import NULL_PARTITION, ParquetFiles
from data_stack.formats.parquet.schema import Field
from data_stack.values.text_numbers import float_of, integer_of

#: How many characters of the name of a folder are shown.
_SHOWN_CHARACTERS = 60


def partition_column(field: Field, files: ParquetFiles) -> npt.NDArray[Any]:
    """Read a partition column from the names of the folders of files.

    Args:
        field: the field of the column.
        files: the files of the dataset.

    Returns:
        The value of each file, shape ``(n_files,)``, of the field's dtype, or objects.

    Raises:
        DatasetFileCorruptError: the name of a folder has no value of the field.
    """
    texts = [values.get(field.name) for values in files.partitions]
    try:
        return _parse(field, texts)
    except (ValueError, pa.ArrowException) as error:
        raise _error_of_folder(field, files, texts, error) from error


def _error_of_folder(
    field: Field, files: ParquetFiles, texts: Sequence[str | None], error: Exception
) -> DatasetFileCorruptError:
    """Return the error that names the first folder without a value of the field.

    Args:
        field: the field of the column.
        files: the files of the dataset.
        texts: the text of each file.
        error: the error of all texts together.
    """
    for number, text in enumerate(texts):
        try:
            _parse(field, [text])
        except (ValueError, pa.ArrowException) as error_of_text:
            if text is None:
                text = NULL_PARTITION
            folder = f"{field.name}={text:.{_SHOWN_CHARACTERS}}"
            return DatasetFileCorruptError(
                f"{files.name(number)}: the folder {folder!r} does not name a value "
                f"of field {field.name!r}: {error_of_text}"
            )
    return DatasetFileCorruptError(
        f"the names of the folders are no values of field {field.name!r}: {error}"
    )


def _parse(field: Field, texts: Sequence[str | None]) -> npt.NDArray[Any]:
    """Convert texts to values of a field, shape ``(len(texts),)``.

    Raises:
        ValueError, pyarrow.ArrowException: a text is not a value of the field.
    """
    type_ = field.arrow_type()
    if is_instant(type_):
        # The names of folders are times of UTC, without a zone.
        type_ = pa.timestamp(type_.unit)
    _check_numbers(texts, type_)
    cells = pa.array(texts, pa.string()).cast(type_)
    # The codec of the field makes values of the cells, as it does for columns of files.
    column = field.cells.column(field, cells, has_nulls=None in texts)
    return column.take(np.arange(len(texts)))


def _check_numbers(texts: Sequence[str | None], type_: pa.DataType) -> None:
    """Check that the texts of a column of numbers are numbers, by the rule of text tables.

    pyarrow would read ``0x10`` as 16, and ``1e400`` as infinity.

    Raises:
        ValueError: a text is no number of the type.
    """
    number_of: Callable[[str], int | float | None]
    if pa.types.is_integer(type_):
        number_of = integer_of
    elif pa.types.is_floating(type_):
        number_of = float_of
    else:
        return
    for text in texts:
        if text is not None and number_of(text) is None:
            raise ValueError(f"{text!r:.80} is no number of {type_}")
