"""Datasets of tables with columns of different kinds, prepared as HDF5."""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from data_stack import DatasetIteratorIF, PreparedResources, Resources
from data_stack.exception import DatasetFileCorruptError
from data_stack.formats import HDF5DatasetIterator, read_csv, write_hdf5
from data_stack_classics.classic import ClassicFactory


class TableFactory(ClassicFactory):
    """Samples are dicts of int, float and str, a key per column; unknown numbers are nan, unknown texts empty.

    The target is a position in ``class_names``.

    Attributes:
        fields: dtype of each column of the file, in order.
        missing: texts that mean unknown values.
        has_header: whether the first line has the names of the columns.
        skip_lines: number of lines to skip first, by split.
    """

    fields: ClassVar[Mapping[str, str]]
    missing: ClassVar[Collection[str]] = ("?",)
    has_header: ClassVar[bool] = True
    skip_lines: ClassVar[Mapping[str, int]] = {}

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        """Store each split as a file of columns."""
        target = str(self.iterator_meta.target_pos)
        for split in prepared.steps(self.splits):
            name = f"raw/{split}.csv"
            with raw[name] as resource:
                # OpenML escapes quotes by a backslash.
                data = bytes(resource.read()).replace(b'\\"', b'""').replace(b"\\'", b"'")
            file, skip_lines = io.BytesIO(data), self.skip_lines.get(split, 0)
            file.name = name
            table = read_csv(
                file,
                self.fields,
                header=self.has_header,
                skip_lines=skip_lines,
                missing=self.missing,
            )
            for column, values in table.items():
                if values.dtype == object:
                    texts = (text.strip() for text in values)
                    table[column] = np.array(
                        ["" if text in self.missing else text for text in texts], object
                    )
            table[target] = self._find_classes(table[target], name)
            self.check_count(name, split, len(table[target]))
            with prepared.create(f"preprocessed/{split}.h5") as stored:
                write_hdf5(stored, table)

    def _find_classes(self, values: npt.NDArray[Any], source: str) -> npt.NDArray[Any]:
        """Convert names of classes to their positions."""
        if values.dtype == object:
            positions = {name: position for position, name in enumerate(self.class_names or ())}
            found = [
                positions.get(name.removesuffix(".")) for name in values
            ]  # lines of adult's test file end with a dot
            if None in found:
                unknown = values[found.index(None)]
                raise DatasetFileCorruptError(
                    f"{source!r} has the class {unknown!r}, expected one of {list(positions)}. Fetch it again"
                )
            values = np.array(found, np.int64)
        self.check_labels(source, values)
        return values

    def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
        """Open one split; rows are read on access."""
        return HDF5DatasetIterator(
            prepared[f"preprocessed/{split}.h5"], {name: name for name in self.fields}
        )
