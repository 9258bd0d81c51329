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
    """Samples are dicts of int, float and str, a key per column.

    Unknown numbers are nan, unknown texts are empty. The target is a position in ``class_names``.

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
            source = f"raw/{split}.csv"
            table = self._read_table(raw, split)
            for column, values in table.items():
                if values.dtype == object:
                    table[column] = self._clean_texts(values)
            table[target] = self._label_values(table[target], source)
            self.check_count(source, split, len(table[target]))
            with prepared.create(f"preprocessed/{split}.h5") as stored:
                write_hdf5(stored, table)

    def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
        """Return one split; rows are read on access."""
        columns = {name: name for name in self.fields}
        return HDF5DatasetIterator(prepared[f"preprocessed/{split}.h5"], columns)

    def _read_table(self, raw: Resources, split: str) -> dict[str, npt.NDArray[Any]]:
        """Return the columns of the CSV file of a split, as it has them."""
        name = f"raw/{split}.csv"
        with raw[name] as resource:
            data = bytes(resource.read())
        # OpenML escapes quotes by a backslash.
        file = io.BytesIO(data.replace(b'\\"', b'""').replace(b"\\'", b"'"))
        file.name = name
        return read_csv(
            file,
            self.fields,
            header=self.has_header,
            skip_lines=self.skip_lines.get(split, 0),
            missing=self.missing,
        )

    def _clean_texts(self, texts: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return texts without spaces around them; unknown ones are empty."""
        clean_texts = []
        for text in texts:
            clean_text = text.strip()
            clean_texts.append("" if clean_text in self.missing else clean_text)
        return np.array(clean_texts, object)

    def _label_values(self, values: npt.NDArray[Any], source: str) -> npt.NDArray[Any]:
        """Return the target as positions in ``class_names``, which the file may have by name."""
        labels = values
        if values.dtype == object:
            labels = self._positions_of_classes(values, source)
        self.check_labels(source, labels)
        return labels

    def _positions_of_classes(self, names: npt.NDArray[Any], source: str) -> npt.NDArray[np.int64]:
        class_names = list(self.class_names or ())
        positions = []
        for name in names:
            # The lines of Adult's test file end with a dot.
            class_name = name.removesuffix(".")
            if class_name not in class_names:
                raise DatasetFileCorruptError(
                    f"{source!r} has the class {name!r}, expected one of {class_names}. "
                    f"Fetch it again"
                )
            positions.append(class_names.index(class_name))
        return np.array(positions, np.int64)
