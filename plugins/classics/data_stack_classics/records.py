"""The base class of datasets whose samples are texts or sounds, stored as records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from data_stack import DatasetIteratorIF, IteratorMeta, PreparedResources, Resources
from data_stack.formats import records
from data_stack_classics.classic import ClassicFactory


class RecordsFactory(ClassicFactory):
    """A dataset whose samples are dicts, ``{"text": str, "label": int}`` by default.

    A derived class overrides ``preprocess``, in which it writes the samples of each split by
    :meth:`open_writer`.

    Attributes:
        spec: type of each column, see :class:`data_stack.formats.records.RecordWriter`.
    """

    spec: ClassVar[Mapping[str, str]] = {"text": "utf8", "label": "i64"}
    iterator_meta = IteratorMeta("text", "label", "label")

    def open_writer(self, prepared: PreparedResources, split: str) -> records.RecordWriter:
        """Open a writer for the samples of a split.

        Args:
            prepared: stores the samples.
            split: name of the split.
        """
        return records.RecordWriter(prepared, self.spec, prefix=f"preprocessed/{split}")

    def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
        """Return one split. A record is read when it is asked for."""
        return records.open(prepared, prefix=f"preprocessed/{split}")
