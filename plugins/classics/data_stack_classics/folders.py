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

_ARCHIVE = "raw/archive.tar.gz"


class RecordsFactory(ClassicFactory):
    """Samples are dicts, stored as records; ``{"text": str, "label": int}`` by default.

    Attributes:
        spec: the types of the columns.
    """

    spec: ClassVar[Mapping[str, str]] = {"text": "utf8", "label": "i64"}
    iterator_meta = IteratorMeta("text", "label", "label")

    def open_writer(self, prepared: PreparedResources, split: str) -> records.RecordWriter:
        """Open a writer for the samples of a split."""
        return records.RecordWriter(prepared, self.spec, prefix=f"preprocessed/{split}")

    def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
        """Return one split; records are read on access."""
        return records.open(prepared, prefix=f"preprocessed/{split}")


class FoldersFactory(RecordsFactory):
    """Samples from the files of an archive, in the order of the archive.

    A derived class overrides ``divide`` and ``make_sample``.
    """

    def divide(self, archive: Archive) -> Callable[[str], str | None]:
        """Return a function from the name of a file to its split; None if it is not a sample."""
        raise NotImplementedError

    def make_sample(self, name: str, data: bytes) -> Mapping[str, Any]:
        """Return the sample of a file.

        Raises:
            ValueError, EOFError, wave.Error: the file is damaged.
        """
        raise NotImplementedError

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        """Store each file as a record, in one pass over the archive."""
        with contextlib.ExitStack() as stack:
            resource = stack.enter_context(raw[_ARCHIVE])
            archive = stack.enter_context(open_archive(resource))
            find_split = self.divide(archive)
            writers = {}
            for split in self.splits:
                writers[split] = stack.enter_context(self.open_writer(prepared, split))

            for member in archive:
                if member.is_folder:
                    continue
                found_split = find_split(member.name)
                if found_split is None:
                    continue
                sample = self._sample_of_file(member.name, archive.read(member))
                writers[found_split].append(sample)

            for split, writer in writers.items():
                self.check_count(_ARCHIVE, split, len(writer))

    def _sample_of_file(self, name: str, data: bytes) -> Mapping[str, Any]:
        """Return the sample of a file; an error of its decoder names the file."""
        try:
            return self.make_sample(name, data)
        except (ValueError, EOFError, wave.Error) as error:
            raise DatasetFileCorruptError(
                f"{name!r} of {_ARCHIVE!r}: {error}. Fetch it again"
            ) from error


class TextFoldersFactory(FoldersFactory):
    """Samples are ``{"text": str, "label": int}``; the label of files without class is -1.

    Attributes:
        folders: folder of each split, with ``{}`` for the class.
        encoding: encoding of the files.
    """

    folders: ClassVar[Mapping[str, str]]
    encoding: ClassVar[str] = "utf-8"

    def divide(self, archive: Archive) -> Callable[[str], str | None]:
        """Return a function that finds the split of a file by its folder."""
        split_of_folder = {}
        for split, pattern in self.folders.items():
            for class_name in self.class_names or ():
                split_of_folder[pattern.format(class_name)] = split

        def find_split(name: str) -> str | None:
            folder, _, _ = name.rpartition("/")
            return split_of_folder.get(folder)

        return find_split

    def make_sample(self, name: str, data: bytes) -> Mapping[str, Any]:
        """Return the text of a file; its folder is named after its class."""
        class_names = self.class_names or ()
        folder = name.split("/")[-2]
        label = class_names.index(folder) if folder in class_names else -1
        return {"text": data.decode(self.encoding), "label": label}
