"""Describes a column for the manifest, from the records that were written."""

from __future__ import annotations

from data_stack.codecs.codec import Codec, ColumnType, FixedLayout
from data_stack.exception import ConfigError
from data_stack.formats.records.record_batch import RecordBatch


class WrittenRecords:
    """The records that a column has so far: their number, and the layout that all of them have.

    Args:
        name: the name of the column, for messages.
        column: the column as declared.
        codec: the codec of its values.
    """

    #: The number of records.
    n_records: int

    #: Whether the first record is empty.
    begins_empty: bool

    #: The layout that all records have; None without records, or without such a layout.
    _layout: FixedLayout | None

    #: Whether a manifest describes the records of earlier writers, or there are none.
    _is_described: bool

    def __init__(self, name: str, column: ColumnType, codec: Codec) -> None:
        self._name = name
        self._column = column
        self._codec = codec
        self.n_records = 0
        self.begins_empty = False
        self._layout = None
        self._is_described = True

    def add(self, batch: RecordBatch) -> None:
        """Count the records of a batch, and compare their layout with that of the others."""
        if len(batch.sizes) == 0:
            return
        if self.n_records == 0:
            self._layout = batch.layout
            self.begins_empty = bool(batch.sizes[0] == 0)
        elif batch.layout != self._layout:
            self._layout = None
        self.n_records += len(batch.sizes)

    def resume_undescribed(self, n_records: int) -> None:
        """Start after records of an earlier writer that no manifest describes."""
        self.n_records = n_records
        self._is_described = n_records == 0

    def resume_after(self, earlier: ColumnType, record_bytes: int | None, n_records: int) -> None:
        """Start after records of an earlier writer, as its manifest describes them.

        Args:
            earlier: the column in the manifest.
            record_bytes: the size of each record there; None if they have different layouts.
            n_records: the number of records there.

        Raises:
            ConfigError: the column is declared with another dtype or shape.
        """
        if n_records == 0:
            return
        if _has_fields(self._column):
            self.resume_undescribed(n_records)
            return
        self.n_records = n_records
        if record_bytes is not None:
            self._layout = self._codec.derive_layout(earlier)
        declared_layout = self._codec.derive_layout(self._column)
        has_other_dtype = self._column.dtype is not None and self._column.dtype != earlier.dtype
        has_other_layout = declared_layout is not None and declared_layout != self._layout
        if has_other_dtype or has_other_layout:
            declared = f"{self._column.dtype}, {self._column.shape}"
            raise ConfigError(
                f"column {self._name!r} is not of {declared} in earlier records; declare no dtype"
            )

    def describe(self) -> tuple[ColumnType, int | None]:
        """Describe the column for a manifest.

        Returns:
            The column as declared, completed by the dtype and shape of its records.
            The size of each record, if all have the layout of that column; otherwise None.
        """
        column = self._complete_column()
        if not self._is_described or _has_fields(column):
            return ColumnType(column.type), None
        layout = self._codec.derive_layout(column)
        if layout is None:
            return column, None
        if self.n_records > 0 and layout != self._layout:
            return column, None
        return column, layout.record_bytes

    def _complete_column(self) -> ColumnType:
        """Return the column with the dtype and shape of its records where none is declared."""
        column = self._column
        layout = self._layout
        if layout is None:
            return column
        dtype = column.dtype or layout.dtype
        shape = layout.shape if column.shape is None else column.shape
        return ColumnType(column.type, dtype, shape)


def _has_fields(column: ColumnType) -> bool:
    """Return whether the dtype is a structured one, which a manifest cannot name."""
    return column.dtype is not None and column.dtype.names is not None
