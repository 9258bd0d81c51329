"""data_stack's own records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data_stack.formats.records import ColumnType, RecordReader, RecordWriter
from record_peers.system import Reader, Sample, System
from record_peers.workload import Field, Schema, Workload


def column_of(field: Field) -> ColumnType | str:
    """How a field is declared."""
    if field.kind == "array":
        return ColumnType("array", field.dtype, field.shape)
    if field.kind == "scalar":
        return ColumnType("i64", field.dtype)
    return {"blob": "bytes", "jpeg": "jpg"}[field.kind]


class RecordsReader(Reader):
    """A RecordReader of default options: every block checked at first touch, values the caller's
    own.
    """

    def __init__(self, schema: Schema, folder: Path) -> None:
        self.reader = RecordReader(folder)
        self._n = len(self.reader)
        self.one = self.reader.__getitem__
        self.batch = self.reader.read_batch

    def __len__(self) -> int:
        return self._n

    def records(self) -> Iterator[Sample]:
        return iter(self.reader)

    def close(self) -> None:
        self.reader.close()


def write(work: Workload, folder: Path) -> None:
    """Fields of one shape by columns, blobs and pictures by append; closing makes it durable."""
    _write(work, folder, by_columns=work.schema.packed is not None)


def append(work: Workload, folder: Path) -> None:
    """Fields of one shape by append as well."""
    _write(work, folder, by_columns=False)


def _write(work: Workload, folder: Path, *, by_columns: bool) -> None:
    spec: dict[str, Any] = {field.name: column_of(field) for field in work.schema.fields}
    with RecordWriter(folder, spec, codecs={"jpg": None}) as writer:  # they are JPEGs already
        if by_columns:
            writer.extend(work.columns)
            return
        for sample in work.samples():
            writer.append(sample)


SYSTEMS = {
    "ours": System(write, RecordsReader, kind="ours"),
    "ours, append": System(
        append, RecordsReader, kind="ours", measures=("write",), packed_only=True
    ),
}
