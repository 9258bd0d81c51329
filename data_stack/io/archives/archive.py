"""The contract of an archive: members by name, read as streams, unpacked into a store."""

from __future__ import annotations

import io
import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from data_stack.exception import ArchiveError, MalformedIdentifierError, UnsafeArchiveError
from data_stack.io.archives.limits import ArchiveLimits
from data_stack.io.folder import folder_of
from data_stack.io.identifiers import check_identifier
from data_stack.io.storage_connectors.storable import COPY_BYTES
from data_stack.util.request_limit import check_request
from data_stack.util.suggestions import did_you_mean

_MAX_NAME_CHARACTERS: Final = 1024
#: Control characters, a backslash (a separator on Windows), and what could not be decoded.
_FORBIDDEN: Final = re.compile("[\x00-\x1f\x7f-\x9f\\\\\ud800-\udfff]")
#: The beginning of an absolute path, on Windows too.
_ABSOLUTE: Final = re.compile(r"/|[A-Za-z]:")


@dataclass(frozen=True)
class ArchiveMember:
    """A regular file or a folder in an archive.

    Attributes:
        name: relative path with ``/`` between its segments; never absolute, empty, or with a
            ``..``.
        size: length in bytes, unpacked; 0 for a folder.
        is_folder: whether it is a folder. Archives need not name the folders of their files.
        offset: where the bytes of a member of a plain tar begin in the stream.
    """

    name: str
    size: int
    is_folder: bool = False
    offset: int = field(default=0, repr=False, compare=False)
    #: What a tar reads the member from.
    _headers: Any = field(default=None, repr=False, compare=False)


def _take_all(member: ArchiveMember) -> bool:
    return True


def _keep_name(name: str) -> str:
    return name


class Archive(ABC):
    """The regular files and folders of a zip or tar archive; :func:`open_archive` makes one.

    Iterating yields the members in their order and checks their names. A name that is absolute,
    climbs out, has a backslash or control character, or occurs twice is an error, and so are links,
    devices and pipes. Owners, times and permissions are not carried over. Any number of members may
    be open at once, in several threads.

    Args:
        name: the name of the archive in messages.
        limits: bounds on the unpacked size.

    Raises:
        ArchiveError: the archive is damaged or truncated.
        UnsafeArchiveError: a member is not a file or folder with a unique name inside of the
            archive.
        ArchiveLimitError: the archive exceeds its limits.
    """

    def __init__(self, name: str, limits: ArchiveLimits) -> None:
        self.name = name
        self._limits = limits
        self._closed = False

    @abstractmethod
    def __iter__(self) -> Iterator[ArchiveMember]:
        """Yield all members, folders included, in the order of the archive."""

    @abstractmethod
    def open(self, member: ArchiveMember | str) -> io.BufferedReader:
        """Open a file of the archive for reading forward.

        Its checksum is verified before its last byte is returned.

        Raises:
            ArchiveError: there is no file of that name.
        """

    def read(self, member: ArchiveMember | str) -> bytes:
        """Return all bytes of a small file of the archive.

        Raises:
            ArchiveError: as for :meth:`open`.
            RequestLimitError: the file has more bytes than a request may take.
        """
        member_name = member if isinstance(member, str) else member.name
        with self.open(member) as stream:
            return read_within_limit(stream, f"{member_name!r} of {self.name!r}")

    def names(self) -> list[str]:
        """Return the names of all files, in the order of the archive."""
        return [member.name for member in self if not member.is_folder]

    def unpack(
        self,
        target: Any,
        prefix: str = "",
        *,
        members: Callable[[ArchiveMember], bool] = _take_all,
        rename: Callable[[str], str] = _keep_name,
    ) -> list[str]:
        """Store files of the archive under ``prefix/name``.

        A member is published once it was read whole. After an error the members before it are
        stored; unpacking again replaces them.

        Args:
            target: argument of :func:`~data_stack.io.folder.folder_of`: a StorageConnector, the
                PreparedResources of a dataset, or the path of a folder.
            prefix: e.g. ``"raw/images"``.
            members: which files to unpack.
            rename: returns new names, for names outside of the grammar of
                :mod:`data_stack.io.identifiers`, such as those with spaces or umlauts.

        Returns:
            The identifiers stored, in the order of the archive.

        Raises:
            ArchiveError: a name is not an identifier, or as for reading.
            UnsafeArchiveError: two members get the same identifier, or as for reading.
        """
        folder = folder_of(target)
        stored = dict[str, bool]()
        for member in self:
            if member.is_folder or not members(member):
                continue
            identifier = self._identifier(rename(member.name), prefix)
            add_name(stored, identifier, self.name)
            with self.open(member) as stream, folder.create(identifier) as writer:
                shutil.copyfileobj(stream, writer, COPY_BYTES)
        return list(stored)

    def close(self) -> None:
        """Stop reading. The stream underneath stays open."""
        self._closed = True

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------ for subclasses

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError(f"archive {self.name!r} is closed")

    def _no_member_error(self, name: str, names: Iterable[str] = ()) -> ArchiveError:
        return ArchiveError(f"{self.name!r} has no file {name!r}{did_you_mean(name, names)}")

    def _identifier(self, name: str, prefix: str) -> str:
        """Return the identifier under which a member is stored."""
        if prefix:
            name = f"{prefix.rstrip('/')}/{name}"
        try:
            return check_identifier(name)
        except MalformedIdentifierError as error:
            raise ArchiveError(
                f"a member of {self.name!r} cannot be stored under its name: {error}. Give rename=…"
            ) from error


def read_within_limit(stream: Any, what: str) -> bytes:
    """Return the rest of a stream of unknown length.

    Args:
        stream: the stream.
        what: names the stream in the error.

    Raises:
        RequestLimitError: there is more than a request may take.
    """
    data = bytearray()
    while chunk := stream.read(COPY_BYTES):
        data += chunk
        check_request(len(data), what)
    return bytes(data)


def add_name(
    is_folder_by_name: dict[str, bool], name: str, archive: str, is_folder: bool = False
) -> None:
    """Add the name of a member to those that occurred before.

    Args:
        is_folder_by_name: the names that occurred, each with whether it is that of a folder.
        name: the name of the member.
        archive: the name of the archive, for the message.
        is_folder: whether the member is a folder.

    Raises:
        UnsafeArchiveError: the name occurred before, other than as a folder both times.
    """
    if name in is_folder_by_name:
        are_both_folders = is_folder and is_folder_by_name[name]
        if not are_both_folders:
            raise UnsafeArchiveError(f"{archive!r} has two members {name!r}")
    is_folder_by_name[name] = is_folder


def check_name(name: str, archive: str) -> str:
    """Normalize the name of a member.

    Returns:
        The name without ``./``, ``//`` and a trailing ``/``; empty for the archive's top folder.

    Raises:
        UnsafeArchiveError: the name is absolute, climbs out, is too long, or is not portable.
    """
    if len(name) > _MAX_NAME_CHARACTERS:
        raise UnsafeArchiveError(
            f"{archive!r} has a member name of {len(name)} characters, "
            f"more than {_MAX_NAME_CHARACTERS}"
        )
    segments = [segment for segment in name.split("/") if segment not in ("", ".")]
    if _ABSOLUTE.match(name) or ".." in segments:
        raise UnsafeArchiveError(
            f"{archive!r} has a member {name!r}, which lies outside of the target folder"
        )
    if _FORBIDDEN.search(name):
        raise UnsafeArchiveError(
            f"{archive!r} has a member {name!r} with a backslash, control character "
            "or undecodable byte"
        )
    return "/".join(segments)
