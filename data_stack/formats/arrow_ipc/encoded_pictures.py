"""The rows of Arrow files with pictures as the bytes of their files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from data_stack.codecs.codec import ColumnType
from data_stack.codecs.registry import media_types, type_of_bytes
from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.dataset.iterator.access import DeclaredColumn
from data_stack.dataset.iterator.access_of_iterator import access_to
from data_stack.formats.arrow_ipc.arrow_dataset import ArrowAccess, ArrowDataset
from data_stack.formats.arrow_ipc.arrow_rows import ArrowRows
from data_stack.formats.arrow_ipc.cell_readers import CellReader, ImageCellReader
from data_stack.formats.column_types import media_columns
from data_stack.values.stacked_values import objects

#: How many bytes of a file tell its type.
_N_START_BYTES: Final = 16

#: So many pictures are read at once to find their types.
_PICTURES_AT_ONCE: Final = 256


class EncodedPictures(ArrowDataset):
    """The rows of an :class:`ArrowDataset` with pictures as the bytes of their files.

    Args:
        rows: the rows.
    """

    def __init__(self, rows: ArrowDataset) -> None:
        super().__init__(rows._positional_files, list(rows._sources), features=rows._given_features)

    def _cell_reader_of(self, rows: ArrowRows, name: str) -> CellReader:
        reader = super()._cell_reader_of(rows, name)
        if isinstance(reader, ImageCellReader):
            return _BytesCellReader(reader)
        return reader


class _BytesCellReader(CellReader):
    """Returns the bytes of pictures, which are dicts of ``bytes`` and ``path``.

    Args:
        images: decodes the same column.
    """

    def __init__(self, images: ImageCellReader) -> None:
        self.declared = DeclaredColumn("bytes", (), images.declared.is_nullable)

    def values(self, cells: pa.Array, *, lent: bool = False) -> npt.NDArray[Any]:
        return objects(pc.struct_field(cells, "bytes").to_pylist())


def find_encoded_pictures(
    samples: DatasetIteratorIF, schema: Mapping[str, ColumnType]
) -> tuple[dict[str, ColumnType], DatasetIteratorIF | None]:
    """Find the columns of pictures of one type, which a conversion copies as they are.

    Args:
        samples: samples of Arrow files.
        schema: the type of each column.

    Returns:
        The type of each column, that of pictures if all of the column are of one; and the samples
        with pictures as bytes, None without such columns.
    """
    access, positions = access_to(samples).unwrap()
    if not isinstance(access, ArrowAccess):
        return dict(schema), None
    rows = access.source
    names = [name for name in rows.picture_columns() if name in schema]
    if not names:
        return dict(schema), None
    encoded = EncodedPictures(rows)
    stored: Any = encoded if positions is None else encoded[np.asarray(positions)]
    types = dict(schema)
    for name in names:
        type_name = _type_of_pictures(stored, name)
        if type_name in media_types():
            types[name] = ColumnType(type_name)
    if not media_columns(types):
        return dict(schema), None
    return types, stored


def _type_of_pictures(encoded: Any, name: str) -> str:
    """Return the type of all pictures of a column; "" if they are of several, or one is missing."""
    types: set[str] = set()
    for start in range(0, len(encoded), _PICTURES_AT_ONCE):
        stop = min(start + _PICTURES_AT_ONCE, len(encoded))
        for data in encoded.read_column(name, np.arange(start, stop)):
            types.add(type_of_bytes((data or b"")[:_N_START_BYTES]) or "")
        if len(types) > 1:
            return ""
    return types.pop() if types else ""
