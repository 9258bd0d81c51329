"""Keeps the text of large files that are compressed, or in another encoding than UTF-8."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from xxhash import xxh3_64

from data_stack.exception import ResourceChangedError, ResourceNotFoundError, StorageError
from data_stack.formats.text_tables.kept_folder import (
    DESCRIPTION_SUFFIX,
    TEXT_SUFFIX,
    KeptFile,
    KeptFolder,
)
from data_stack.formats.text_tables.pinned_file import PinnedFile
from data_stack.formats.text_tables.text_file import TextFile
from data_stack.io.location import as_resource
from data_stack.io.storage_connectors.owners import this_machine
from data_stack.io.web.json_shape import check_shape
from data_stack.util.logger import logger
from data_stack.util.polling import polls

#: How long a process waits for another one that copies the same text.
_MAX_WAIT_SECONDS: Final = 3600.0

#: The errors of a copy that is gone, or is made again at this moment.
_GONE_ERRORS: Final = (ResourceNotFoundError, ResourceChangedError, StorageError)

#: How many bytes of a copy are read at once to verify it.
_PIECE_BYTES: Final = 1 << 22

#: Changes when the layout of kept texts does.
_LAYOUT: Final = 1
_DESCRIPTION_SHAPE: Final = {
    "name": str,
    "sha256?": str,
    "version": list,
    "digest": str,
    "boot": str,
}


@dataclass(frozen=True)
class TextCopy:
    """A copy of the text of a file, in UTF-8.

    Attributes:
        file: the copy.
        sha256: the digest of the bytes of the file that was copied.
    """

    file: PinnedFile
    sha256: str | None


class KeptText:
    """The copy that is kept of the text of a version of a file.

    The name of the copy has a digest of what identifies the file (:meth:`PinnedFile.name_kept`),
    and of its encoding. A description beside the copy has the size, the times and the digest of
    samples of the copy. If the copy has others, it is made again.

    A copy is not flushed to the disk, so a power failure may leave a hole in it. Its first opening
    after a restart, or on another machine, reads the whole copy and compares its digest.

    Args:
        name: the name of the kept files, without their suffixes.
        folder: their folder.
    """

    #: The name of the kept files, without their suffixes.
    _name: str

    #: Their folder.
    _folder: KeptFolder

    def __init__(self, name: str, folder: KeptFolder) -> None:
        self._name = name
        self._folder = folder

    @classmethod
    def of(cls, file: PinnedFile, encoding: str) -> KeptText | None:
        """Return what is, or will be, kept of a file; None if its version is not certain.

        Args:
            file: the file as it is stored.
            encoding: the encoding of its text.
        """
        codec = codecs.lookup(encoding).name
        name = file.name_kept(_LAYOUT, "text", codec)
        if name is None:
            return None
        return cls(name, KeptFolder.of_user())

    def find(self) -> TextCopy | None:
        """Return the copy; None if it is not kept, or was changed."""
        description = _load_description(self._folder, self._name + DESCRIPTION_SUFFIX)
        if description is None:
            return None
        try:
            copy = self._pin()
            version = _version_of(copy)
        except _GONE_ERRORS:
            return None
        if version != description["version"]:
            return None
        if description["boot"] != this_machine():
            if _digest_of(copy) != description["digest"]:
                return None
            description["boot"] = this_machine()
            self._folder.store_facts(self._name + DESCRIPTION_SUFFIX, description)
        self._folder.note_use(self._name + DESCRIPTION_SUFFIX)
        return TextCopy(copy, description["sha256"])

    def make(self, file: TextFile) -> TextCopy | None:
        """Return the copy that this process makes, or another one meanwhile.

        Args:
            file: the file, which is read from its start.

        Returns:
            None if no copy can be kept; the log says why.
        """
        lease = self._folder.lease(self._name)
        is_waiting = False
        try:
            for _ in polls(_MAX_WAIT_SECONDS, first=0.02, longest=1.0):
                has_lease = lease.acquire()
                copy = self.find()
                if copy is not None:
                    return copy
                if has_lease:
                    break
                if not is_waiting:
                    logger.info("waiting for a process that copies the text of %r", file.name)
                    is_waiting = True
            return self._write(file)
        finally:
            lease.close()

    def _write(self, file: TextFile) -> TextCopy | None:
        """Copy the text; return None if that is not possible."""
        logger.info("copying the text of %r to %s", file.name, self._folder.path)
        # Texts that were used longest ago make room for this one.
        self._folder.prune()
        digest = xxh3_64()
        pieces = _update_with_each(digest, file.pieces())
        if not self._folder.store(self._name + TEXT_SUFFIX, pieces):
            return None
        try:
            copy = self._pin()
            version = _version_of(copy)
        except _GONE_ERRORS:
            # Somebody has cleared the folder.
            return None
        description = {
            "name": file.name,
            "sha256": file.sha256,
            "version": version,
            "digest": digest.hexdigest(),
            "boot": this_machine(),
        }
        if not self._folder.store_facts(self._name + DESCRIPTION_SUFFIX, description):
            self._folder.remove(self._name + TEXT_SUFFIX)
            return None
        return TextCopy(copy, file.sha256)

    def _pin(self) -> PinnedFile:
        return pin_file(str(self._folder.path / (self._name + TEXT_SUFFIX)))


def source_of(folder: KeptFolder, text: KeptFile) -> str:
    """Return the name of the file of which a text is kept.

    Args:
        folder: the folder of the text.
        text: the text.
    """
    description = _load_description(folder, text.path.with_suffix(DESCRIPTION_SUFFIX).name)
    if description is None:
        return "?"
    return str(description["name"])


def _load_description(folder: KeptFolder, name: str) -> dict[str, Any] | None:
    """Return the description of a text; None if it is not kept here, or damaged.

    Args:
        folder: the folder of the text.
        name: the name of the description.
    """
    description = folder.load_facts(name)
    try:
        check_shape(description, _DESCRIPTION_SHAPE)
    except ValueError:
        return None
    checked_description: dict[str, Any] = description
    return checked_description


def pin_file(path: str) -> PinnedFile:
    """Pin a file of this machine.

    Raises:
        MissingFileError: there is none.
    """
    with as_resource(path) as resource:
        return PinnedFile(resource)


def _update_with_each(digest: xxh3_64, pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Hand pieces on, each after the digest was updated with it."""
    for piece in pieces:
        digest.update(piece)
        yield piece


def _digest_of(copy: PinnedFile) -> str:
    """Return the XXH3 of all bytes of a copy, 16 hex digits."""
    digest = xxh3_64()
    file = copy.open()
    for start in range(0, copy.n_bytes, _PIECE_BYTES):
        digest.update(file.read_at(start, _PIECE_BYTES))
    return digest.hexdigest()


def _version_of(copy: PinnedFile) -> list[Any]:
    """Return what changes when a copy is written to."""
    return [*copy.version.content, copy.digest_of_samples()]
