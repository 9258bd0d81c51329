"""Some encoded records of a column, ready to be written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.codecs.codec import Codec, FixedLayout

_Array = npt.NDArray[Any]


@dataclass(frozen=True)
class RecordBatch:
    """Some records of a column, end to end.

    Attributes:
        data: the bytes of the records, which do not change any more.
        sizes: the size of each record in bytes, shape ``(n_records,)``.
        layout: the layout that all of them have; None without one.
    """

    data: bytes | memoryview
    sizes: npt.NDArray[np.uint64]
    layout: FixedLayout | None = None

    @classmethod
    def join(cls, records: Sequence[bytes], codec: Codec | None = None) -> RecordBatch:
        """Join records.

        Args:
            records: the records.
            codec: the codec that encoded them; None for records that never have a layout.
        """
        sizes = np.fromiter(map(len, records), np.uint64, len(records))
        layout = None
        if codec is not None and records:
            layout = _common_layout(records, codec)
        return cls(b"".join(records), sizes, layout)

    @classmethod
    def encode_rows(cls, values: _Array, layout: FixedLayout, buffer: _Array) -> RecordBatch:
        """Encode the rows of an array as records of one layout.

        Args:
            values: the rows, shape ``(n, *layout.shape)``, of a dtype that the layout's can hold.
            layout: the layout of each record.
            buffer: takes the records: uint8, shape ``(n * layout.record_bytes,)``.
        """
        n_rows = len(values)
        header_bytes = len(layout.header)
        record_bytes = layout.record_bytes
        if n_rows and record_bytes:
            if header_bytes == 0:
                buffer.view(layout.dtype).reshape(values.shape)[...] = values
            else:
                records = buffer.reshape(n_rows, record_bytes)
                records[:, :header_bytes] = np.frombuffer(layout.header, np.uint8)
                if values.size:
                    rows = np.ascontiguousarray(values, layout.dtype)
                    row_bytes = rows.reshape(-1).view(np.uint8)
                    records[:, header_bytes:] = row_bytes.reshape(n_rows, -1)
        sizes = np.full(n_rows, record_bytes, np.uint64)
        return cls(buffer.data, sizes, layout)


def _common_layout(records: Sequence[bytes], codec: Codec) -> FixedLayout | None:
    """Return the layout that all records have; None without one."""
    layout = codec.layout_of(records[0])
    if layout is None:
        return None
    record_bytes = layout.record_bytes
    header = layout.header
    for record in records:
        if len(record) != record_bytes or not record.startswith(header):
            return None
    return layout
