"""The contract of an archive."""

from __future__ import annotations

import io
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from data_stack.exception import ArchiveError, MalformedIdentifierError
from data_stack.io.archives.limits import ArchiveLimits
from data_stack.io.archives.member_names import MemberNames
from data_stack.io.archives.streams import read_within_limit
from data_stack.io.folder import folder_of
from data_stack.io.identifiers import check_identifier
from data_stack.io.storage_connectors.storable import COPY_BYTES
from data_stack.util.suggestions import did_you_mean


@dataclass(frozen=True)
class ArchiveMember:
    """A regular file or a folder in an archive.

    Attributes:
        name: relative path with ``/`` between its segments; never absolute, empty, or with a
            ``..``.
        size: length of its content in bytes, unpacked; 0 for a folder.
        is_folder: whether it is a folder. Archives need not name the folders of their files.
        offset: where its content begins in the unpacked tar, in bytes; 0 in a zip.
    """

    name: str
    size: int
    is_folder: bool = False
    offset: int = field(default=0, repr=False, compare=False)
    #: The stream whose headers named the member, in a tar; None in a zip.
    _headers: Any = field(default=None, repr=False, compare=False)


def name_of_member(member: ArchiveMember | str) -> str:
    """Return the name of a member that is given itself or by its name."""
    if isinstance(member, str):
        return member
    return member.name


def _take_all(member: ArchiveMember) -> bool:
    """Choose each member; the default of ``members``."""
    return True


def _keep_name(name: str) -> str:
    """Return a name unchanged; the default of ``rename``."""
    return name


class Archive(ABC):
    """The regular files and folders of a zip or tar archive; :func:`open_archive` makes one.

    Iterating yields the members in their order, and checks their names. A name that is absolute,
    climbs out, has a backslash or control character, or occurs twice is an error, and so are links,
    devices and pipes. Owners, times and permissions are not carried over. Any number of members may
    be open at once, in several threads; those of a compressed tar that an iteration yielded are
    read before the iteration goes on.

    Args:
        name: the name of the archive in messages.
        limits: bounds on the unpacked size.

    Raises:
        ArchiveError: the archive is damaged or truncated. This and the errors below are raised when
            the archive is opened, iterated over or read.
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
        """Open a file of the archive as a stream that reads forward only.

        If the archive has a checksum of the file, it is verified before the last byte is returned.

        Raises:
            ArchiveError: there is no file of that name.
        """

    def read(self, member: ArchiveMember | str) -> bytes:
        """Return all bytes of a small file of the archive.

        Raises:
            ArchiveError: as for :meth:`open`.
            RequestLimitError: the file has more bytes than a request may take.
        """
        with self.open(member) as stream:
            return read_within_limit(stream, f"{name_of_member(member)!r} of {self.name!r}")

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

        Each file is published once it was read whole. If there is an error, the files before it
        stay stored; unpacking again replaces them.

        Args:
            target: argument of :func:`~data_stack.io.folder.folder_of`: a StorageConnector, the
                PreparedResources of a dataset, or the path of a folder.
            prefix: e.g. ``"raw/images"``.
            members: returns whether to unpack a file.
            rename: returns new names, for names outside of the grammar of
                :mod:`data_stack.io.identifiers`, such as those with spaces or umlauts.

        Returns:
            The identifiers stored, in the order of the archive.

        Raises:
            ArchiveError: a name is not an identifier, or as for reading.
            UnsafeArchiveError: two members get the same identifier, or as for reading.
        """
        folder = folder_of(target)
        identifiers = list[str]()
        names = MemberNames(self.name)
        for member in self:
            if member.is_folder or not members(member):
                continue
            identifier = self._identifier(rename(member.name), prefix)
            # Two members may get the same name by ``rename``.
            names.add(identifier, is_folder=False)
            with self.open(member) as stream, folder.create(identifier) as writer:
                shutil.copyfileobj(stream, writer, COPY_BYTES)
            identifiers.append(identifier)
        return identifiers

    def close(self) -> None:
        """Stop reading. The stream underneath stays open."""
        self._closed = True

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------ for subclasses

    def _check_open(self) -> None:
        """Check that the archive was not closed.

        Raises:
            ValueError: it was.
        """
        if self._closed:
            raise ValueError(f"archive {self.name!r} is closed")

    def _no_member_error(self, name: str, names: Iterable[str] = ()) -> ArchiveError:
        """Return the error of a name that is not that of a file.

        Args:
            name: the name.
            names: the names of the members, to propose a similar one.
        """
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
