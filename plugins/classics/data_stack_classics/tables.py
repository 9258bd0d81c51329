"""The base class of datasets in CSV files, whose columns have different dtypes."""

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
    """A dataset of tables, a CSV file ``raw/<split>.csv`` for each split, prepared as HDF5.

    Samples are dicts with an int, a float or a str of each column. Unknown floats are nan, and
    unknown texts are empty.

    The target is the column that ``iterator_meta`` names. It is stored as a position in
    ``class_names``. The file may have the position or the name.

    Attributes:
        fields: dtype of each column of the file, in order.
        missing: texts that mean unknown values.
        has_header: whether the first line has the names of the columns.
        skip_lines: number of lines to skip before, by split.
        has_escaped_quotes: whether a backslash stands before each quote in a text, as in files of
            OpenML.
        class_suffix: text behind the names of classes in the file, which is left out.
    """

    fields: ClassVar[Mapping[str, str]]
    missing: ClassVar[Collection[str]] = ("?",)
    has_header: ClassVar[bool] = True
    skip_lines: ClassVar[Mapping[str, int]] = {}
    has_escaped_quotes: ClassVar[bool] = False
    class_suffix: ClassVar[str] = ""

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        """Store each split as a file of columns."""
        target = str(self.iterator_meta.target_pos)  # the key of a dict, not a position
        for split in prepared.steps(self.splits):
            source = f"raw/{split}.csv"
            table = self._read_table(raw, split)
            self.check_count(source, split, len(table[target]))
            for column, values in table.items():
                is_text = values.dtype == object
                if is_text:
                    table[column] = self._clean_texts(values)
            table[target] = self._label_values(table[target], source)
            with prepared.create(f"preprocessed/{split}.h5") as stored:
                write_hdf5(stored, table)

    def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
        """Return one split. A row is read when it is asked for."""
        columns = {name: name for name in self.fields}
        return HDF5DatasetIterator(prepared[f"preprocessed/{split}.h5"], columns)

    def _read_table(self, raw: Resources, split: str) -> dict[str, npt.NDArray[Any]]:
        """Return the columns of the CSV file of a split, as the file has them."""
        name = f"raw/{split}.csv"
        with raw[name] as resource:
            data = bytes(resource.read())
        if self.has_escaped_quotes:
            data = data.replace(b'\\"', b'""').replace(b"\\'", b"'")
        file = io.BytesIO(data)
        file.name = name  # for messages of read_csv
        return read_csv(
            file,
            self.fields,
            header=self.has_header,
            skip_lines=self.skip_lines.get(split, 0),
            missing=self.missing,
        )

    def _clean_texts(self, texts: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return texts without the spaces around them. Unknown texts become empty."""
        clean_texts = []
        for text in texts:
            clean_text = text.strip()
            if clean_text in self.missing:
                clean_text = ""
            clean_texts.append(clean_text)
        return np.array(clean_texts, object)

    def _label_values(self, values: npt.NDArray[Any], source: str) -> npt.NDArray[Any]:
        """Return the values of the target as positions in ``class_names``.

        Args:
            values: positions or names of classes.
            source: name of the file, for messages.

        Raises:
            DatasetFileCorruptError: a value is no class.
        """
        labels = values
        are_names = values.dtype == object
        if are_names:
            labels = self._positions_of_classes(values, source)
        self.check_labels(source, labels)
        return labels

    def _positions_of_classes(self, names: npt.NDArray[Any], source: str) -> npt.NDArray[np.int64]:
        """Return the positions of names in ``class_names``.

        Raises:
            DatasetFileCorruptError: a name is no class.
        """
        class_names = list(self.class_names or ())
        positions = []
        for name in names:
            class_name = name.removesuffix(self.class_suffix)
            if class_name not in class_names:
                raise DatasetFileCorruptError(
                    f"{source!r} has the class {name!r}, expected one of {class_names}. "
                    f"Fetch it again"
                )
            positions.append(class_names.index(class_name))
        return np.array(positions, np.int64)
