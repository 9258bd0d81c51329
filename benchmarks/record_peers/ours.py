"""data_stack's own records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from data_stack.formats.records import Column, RecordReader, RecordWriter
from record_peers.system import Reader, Sample, System
from record_peers.workload import Field, Schema, Workload


def column_of(field: Field) -> Column | str:
    """How a field is declared."""
    if field.kind == "array":
        return Column("array", field.dtype, field.shape)
    if field.kind == "scalar":
        return Column("i64", field.dtype)
    return {"blob": "bytes", "jpeg": "jpg"}[field.kind]


class RecordsReader(Reader):
    """A RecordReader of default options: every block checked at first touch, values the caller's own."""

    def __init__(self, folder: Path) -> None:
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


class Records(System):
    """Fields of one shape by columns, blobs and pictures by append; closing makes it durable."""

    kind: ClassVar[str] = "ours"

    def write(self, work: Workload, folder: Path) -> None:
        spec: dict[str, Any] = {field.name: column_of(field) for field in work.schema.fields}
        with RecordWriter(folder, spec, codecs={"jpg": None}) as writer:  # they are JPEGs already
            if work.schema.packed is not None:
                writer.extend(work.columns)
                return
            for sample in work.samples():
                writer.append(sample)

    def open(self, schema: Schema, folder: Path) -> Reader:
        return RecordsReader(folder)


class AppendedRecords(Records):
    """Fields of one shape by append as well."""

    measures: ClassVar[tuple[str, ...]] = ("write",)

    def supports(self, schema: Schema) -> bool:
        return schema.packed is not None

    def write(self, work: Workload, folder: Path) -> None:
        with RecordWriter(folder, {field.name: column_of(field) for field in work.schema.fields}) as writer:
            for sample in work.samples():
                writer.append(sample)


SYSTEMS: dict[str, System] = {"ours": Records(), "ours, append": AppendedRecords()}
