"""Datasets of texts and sounds, a record each, from archives whose folders say split and class."""

from __future__ import annotations

import contextlib
import wave
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from data_stack import DatasetIteratorIF, IteratorMeta, PreparedResources, Resources
from data_stack.exception import DatasetFileCorruptError
from data_stack.formats import records
from data_stack.io.archives import Archive, open_archive
from data_stack_classics.classic import ClassicFactory


class RecordsFactory(ClassicFactory):
    """Dict samples, stored as records; ``{"text": str, "label": int}`` by default.

    Attributes:
        spec: the types of the columns.
    """

    spec: ClassVar[Mapping[str, str]] = {"text": "utf8", "label": "i64"}
    iterator_meta = IteratorMeta("text", "label", "label")

    def open_writer(self, prepared: PreparedResources, split: str) -> records.RecordWriter:
        """Open a writer for the samples of a split."""
        return records.RecordWriter(prepared, self.spec, prefix=f"preprocessed/{split}")

    def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
        """Open one split; records are read on access."""
        return records.open(prepared, prefix=f"preprocessed/{split}")


class FoldersFactory(RecordsFactory):
    """Samples from the files of an archive, in its order; a derived class overrides ``divide`` and ``make_sample``."""

    def divide(self, archive: Archive) -> Callable[[str], str | None]:
        """Return a function from the name of a file to its split; None if the file is not a sample."""
        raise NotImplementedError

    def make_sample(self, name: str, data: bytes) -> Mapping[str, Any]:
        """Return the sample of a file.

        Raises:
            ValueError, EOFError, wave.Error: the file is damaged.
        """
        raise NotImplementedError

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        """Store each file as a record, in one pass over the archive."""
        source = "raw/archive.tar.gz"
        with contextlib.ExitStack() as stack:
            archive = stack.enter_context(open_archive(stack.enter_context(raw[source])))
            find_split = self.divide(archive)
            writers = {
                split: stack.enter_context(self.open_writer(prepared, split))
                for split in self.splits
            }
            for member in archive:
                split = None if member.is_folder else find_split(member.name)
                if split is None:
                    continue
                try:
                    writers[split].append(self.make_sample(member.name, archive.read(member)))
                except (ValueError, EOFError, wave.Error) as error:
                    raise DatasetFileCorruptError(
                        f"{member.name!r} of {source!r}: {error}. Fetch it again"
                    ) from error
            for split, writer in writers.items():
                self.check_count(source, split, len(writer))


class TextFoldersFactory(FoldersFactory):
    """Samples ``{"text": str, "label": int}``; the label of files without class is -1.

    Attributes:
        folders: folder of each split, with ``{}`` for the class.
        encoding: encoding of the files.
    """

    folders: ClassVar[Mapping[str, str]]
    encoding: ClassVar[str] = "utf-8"

    def divide(self, archive: Archive) -> Callable[[str], str | None]:
        names = self.class_names or ()
        splits = {
            folder.format(name): split for split, folder in self.folders.items() for name in names
        }
        return lambda name: splits.get(name.rpartition("/")[0])

    def make_sample(self, name: str, data: bytes) -> Mapping[str, Any]:
        folder, names = name.split("/")[-2], self.class_names or ()
        return {
            "text": data.decode(self.encoding),
            "label": names.index(folder) if folder in names else -1,
        }
