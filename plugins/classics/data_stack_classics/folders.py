"""Base classes of datasets whose samples are the files of an archive, a file each."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Any, ClassVar

from data_stack import PreparedResources, Resources
from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.records import RecordWriter
from data_stack.io.archives import Archive, open_archive
from data_stack_classics.records import RecordsFactory as RecordsFactory

_ARCHIVE = "raw/archive.tar.gz"

#: The label of a sample without a class.
_NO_LABEL = -1


class FoldersFactory(RecordsFactory):
    """A dataset whose samples are the files of ``raw/archive.tar.gz``, in the order of the archive.

    A derived class overrides :meth:`divide` and :meth:`make_sample`.
    """

    @abstractmethod
    def divide(self, archive: Archive) -> Callable[[str], str | None]:
        """Return a function that finds the split of a file.

        Args:
            archive: the archive, which the function may need to read first.

        Returns:
            A function of the name of a file. It returns the name of a split; None if the file is no
            sample.
        """

    @abstractmethod
    def make_sample(self, name: str, data: bytes) -> Mapping[str, Any]:
        """Return the sample of a file.

        Args:
            name: name of the file in the archive.
            data: content of the file.

        Raises:
            ValueError, EOFError: the file is damaged.
        """

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        """Store each file as a record, in one pass over the archive."""
        with contextlib.ExitStack() as stack:
            resource = stack.enter_context(raw[_ARCHIVE])
            archive = stack.enter_context(open_archive(resource))
            find_split = self.divide(archive)
            writers: dict[str, RecordWriter] = {}
            for split in self.splits:
                writers[split] = stack.enter_context(self.open_writer(prepared, split))

            for member in archive:
                if member.is_folder:
                    continue
                split_of_file = find_split(member.name)
                # A derived class may leave out splits that the archive has.
                if split_of_file is None or split_of_file not in writers:
                    continue
                sample = self._sample_of_file(member.name, archive.read(member))
                writers[split_of_file].append(sample)

            for split, writer in writers.items():
                self.check_count(_ARCHIVE, split, len(writer))

    def _sample_of_file(self, name: str, data: bytes) -> Mapping[str, Any]:
        """Return the sample of a file.

        Raises:
            DatasetFileCorruptError: the file is damaged; the message names it.
        """
        try:
            return self.make_sample(name, data)
        except (ValueError, EOFError) as error:
            raise DatasetFileCorruptError(
                f"{name!r} of {_ARCHIVE!r}: {error}. Fetch it again"
            ) from error


class TextFoldersFactory(FoldersFactory):
    """A dataset of texts, whose folder in the archive says the split and the class.

    Samples are ``{"text": str, "label": int}``: the text, and the position of its class in
    ``class_names``. The label is -1 in a folder without class.

    Attributes:
        folders: folder of each split, such as ``"train/{}"``, with ``{}`` for the name of the
            class. A folder without ``{}`` has texts without class.
        encoding: encoding of the files.
    """

    folders: ClassVar[Mapping[str, str]]
    encoding: ClassVar[str] = "utf-8"

    def divide(self, archive: Archive) -> Callable[[str], str | None]:
        """Return a function that finds the split of a file by its folder."""
        split_of_folder: dict[str, str] = {}
        for split, pattern in self.folders.items():
            if "{}" not in pattern:
                split_of_folder[pattern] = split
                continue
            for class_name in self.class_names or ():
                split_of_folder[pattern.format(class_name)] = split

        def find_split(name: str) -> str | None:
            folder, _, _ = name.rpartition("/")
            return split_of_folder.get(folder)

        return find_split

    def make_sample(self, name: str, data: bytes) -> Mapping[str, Any]:
        """Return the text of a file and its class, after which the folder of the file is named."""
        text = data.decode(self.encoding)
        folder = PurePosixPath(name).parent.name
        class_names = list(self.class_names or ())
        label = _NO_LABEL
        if folder in class_names:
            label = class_names.index(folder)
        return {"text": text, "label": label}
