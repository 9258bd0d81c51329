"""The shards of a WebDataset, which are tar files."""

from __future__ import annotations

import functools
import io
import itertools
from collections.abc import Sequence
from typing import Final

import numpy as np

from data_stack.exception import (
    ArchiveError,
    DatasetFileCorruptError,
    ResourceChangedError,
    UnsafeArchiveError,
)
from data_stack.formats.records.stored_file import StoredFile
from data_stack.formats.webdataset_fields import is_of_sample
from data_stack.formats.webdataset_index import BLOCK_BYTES, ShardFiles
from data_stack.formats.webdataset_kept import KeptPieces
from data_stack.formats.webdataset_stream import PieceStream
from data_stack.io.account import LeftOut, PlaceAccount, account_of, is_document, is_hidden
from data_stack.io.archives.archive import ArchiveMember
from data_stack.io.archives.limits import ArchiveLimits
from data_stack.io.archives.streams import window
from data_stack.io.archives.tar import TarArchive, looks_like_tar
from data_stack.io.folder import Folder
from data_stack.io.local_status import local_status_of
from data_stack.io.location import Location
from data_stack.io.resources import StreamedResource
from data_stack.io.stand_ins import HEAD_BYTES, check_no_stand_in
from data_stack.io.versions import SeenVersions
from data_stack.util.forks import fork_lock
from data_stack.util.untrusted_text import parse_json

#: The list of the shards, in the form of WebDataset's ``wids``. It is written last, so that a shard
#: that is missing is noticed.
SHARD_INDEX: Final = "shardindex.json"

#: The rule that leaves out a file in a shard.
_NO_SAMPLE: Final = "a file without a suffix, which belongs to no sample"

#: The rule that leaves out a file in a folder of shards.
_NO_SHARD: Final = "no .tar in the folder itself, or not in shardindex.json"

#: The size of the blocks in which the headers of a tar are read.
_HEADER_BLOCK_BYTES: Final = 1 << 12

#: Larger files of a remote tar are skipped, by a request for the next header. Reading on over a
#: picture takes less time than another request: the index of 1,280 pictures 20 ms away took 37 s by
#: requests for headers.
_SMALL_FILE_BYTES: Final = 1 << 18

#: The number of files at the start of a tar that tell how large its files are.
_N_FIRST_FILES: Final = 4

#: How much is fetched of a remote tar to see its first files.
_N_FIRST_BYTES: Final = 1 << 18

#: The limits of a shard. They are high, as nothing is extracted: only the headers are read.
_LIMITS: Final = ArchiveLimits(max_bytes=1 << 50, max_members=1 << 27)

#: The maximum number of shards that are kept open.
_MAX_OPEN: Final = 256


# ---------------------------------------------------------------------- the shards of a folder


def shard_names(folder: Folder) -> list[str]:
    """Return the shards in a folder, in order.

    These are the files that ``shardindex.json`` lists, otherwise all ``.tar`` files by name.

    Raises:
        DatasetFileCorruptError: the list is damaged, or a shard is missing.
    """
    names = []
    for name in folder.list_names():
        if name.lower().endswith(".tar") and not name.startswith("."):
            names.append(name)
    if not folder.has_file(SHARD_INDEX):
        return names

    full_name = folder.full_name(SHARD_INDEX)
    data = folder.read(SHARD_INDEX)
    try:
        index = parse_json(data)
        listed_names = [str(shard["url"]) for shard in index["shardlist"]]
    except (ValueError, LookupError, TypeError) as error:
        raise DatasetFileCorruptError(
            f"{full_name} is damaged: it lists no shards ({str(error)[:200]})"
        ) from error
    missing_names = set(listed_names).difference(names)
    if missing_names:
        raise DatasetFileCorruptError(
            f"{full_name} lists {min(missing_names)!r:.80}, which is missing"
        )
    return listed_names


def account_of_shards(folder: Folder) -> PlaceAccount:
    """Return which files of a folder of shards are read, and which are left out.

    Raises:
        DatasetFileCorruptError: the list of the shards is damaged, or a shard is missing.
    """
    paths, links = folder.survey()
    paths_read = [*shard_names(folder), SHARD_INDEX]
    return account_of(folder.full_name(""), paths_read, paths, _NO_SHARD, links)


# ---------------------------------------------------------------------- open shards


class OpenShards:
    """The shards of a dataset. Those that were used last are kept open.

    Args:
        shards: the locations of the shards, in order.
        kept: keeps the bytes of remote shards that come with their headers.
        seen: the versions of the shards as another process read them first; None for a first
            reader.

    Attributes:
        kept: as given.
        seen: the versions of the shards as they were first read.
    """

    kept: KeptPieces
    seen: SeenVersions
    #: The locations of the shards, in order.
    _shards: Sequence[Location]
    #: The open shards by number, the one that was used last at the end.
    _files: dict[int, StoredFile]

    def __init__(
        self, shards: Sequence[Location], kept: KeptPieces, seen: SeenVersions | None = None
    ) -> None:
        if seen is None:
            seen = SeenVersions(len(shards))
        self.kept = kept
        self.seen = seen
        self._shards = shards
        self._files = {}
        self._lock = fork_lock()

    def open_first(self, number: int) -> StreamedResource:
        """Open a shard to read it from its start. It must be the version that was read first.

        Raises:
            ResourceChangedError: the shard was replaced or changed.
        """
        shard = self._shards[number]
        return self.seen.check_opened(number, shard.full_name, shard.open())

    def file(self, number: int) -> StoredFile:
        """Return an open shard, to read ranges of it.

        Raises:
            ResourceChangedError: the shard was replaced or changed: its files may lie elsewhere.
        """
        with self._lock:
            file = self._files.pop(number, None)
            if file is None:
                file = self._open_file(number)
            self._files[number] = file
            if len(self._files) > _MAX_OPEN:
                least_recently_used = next(iter(self._files))
                del self._files[least_recently_used]
            return file

    @property
    def are_remote(self) -> bool:
        """Whether the first shard is in a remote store.

        The bytes may all be on the local disk, in the cache of the store: an order by blocks does
        not depend on that.
        """
        return self.file(0).prefetches

    def list_files(self, number: int, max_ahead: int) -> ShardFiles:
        """Read the headers of a shard; see :func:`list_shard_files`.

        Raises:
            DatasetFileCorruptError, ResourceChangedError, UnsafeArchiveError: as for
                :func:`list_shard_files` and :meth:`open_first`.
        """
        opened = self.open_first(number)
        return list_shard_files(self._shards[number], opened, number, self.kept, max_ahead)

    def read(self, number: int, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Read ranges, each an offset and a size, of a shard.

        Raises:
            DatasetFileCorruptError: the shard is cut short.
            ResourceChangedError: the shard was replaced or changed.
        """
        contents = self.kept.find(number, ranges)
        if contents is not None:
            return contents
        offsets, sizes = np.array(ranges, np.int64).T
        return self.file(number).read_many(offsets, offsets + sizes)

    def prefetch(self, number: int, ranges: Sequence[tuple[int, int]]) -> None:
        """Fetch ranges, each an offset and a size, of a shard into the cache of its store."""
        missing = [byte_range for byte_range in ranges if not self.kept.has(number, *byte_range)]
        if not missing:
            return
        ranges_of_file = self.file(number).ranges
        if ranges_of_file is not None:
            ranges_of_file.resource.prefetch(missing)

    def _open_file(self, number: int) -> StoredFile:
        shard = self._shards[number]
        file = StoredFile(shard.folder, shard.name, None)
        if not self.seen.is_unchanged(number, file.version):
            before = "another version when its headers were read"
            raise ResourceChangedError(shard.full_name, before, str(file.version))
        return file


# ---------------------------------------------------------------------- the headers of a shard


def list_shard_files(
    shard: Location,
    opened: StreamedResource,
    number: int,
    kept: KeptPieces,
    max_ahead: int,
) -> ShardFiles:
    """Read the headers of a shard.

    Args:
        shard: the location of the shard.
        opened: the opened shard, which is closed at the end.
        number: the number of the shard.
        kept: keeps the pieces of a remote shard of small files.
        max_ahead: the limit of the pieces that are fetched before they are needed.

    Raises:
        DatasetFileCorruptError: it is no tar, or damaged.
        UnsafeArchiveError: it has files that are unsafe.
    """
    name = shard.full_name
    files = ShardFiles([], [])
    with opened as file:
        # The cache of a remote store may have the whole shard on the local disk.
        is_fetched = file.prefetches and local_status_of(file) is None
        if is_fetched:
            # One request for the first headers, which tell how large the files are.
            file.prefetch([(0, _N_FIRST_BYTES)])
        head = file.read_at(0, BLOCK_BYTES)
        if not head:
            raise DatasetFileCorruptError(f"{name!r} is empty: it has 0 bytes. Fetch it again.")
        if len(head) < BLOCK_BYTES or not looks_like_tar(head):
            check_no_stand_in(file.read_at(0, HEAD_BYTES), repr(name), file.size)
            raise DatasetFileCorruptError(
                f"{name!r} is not a tar; decompress it, as a compressed one has no random access"
            )
        stream: io.BufferedReader
        try:
            if is_fetched and _has_small_files(name, file):
                # The headers lie all over the shard, so that all of it is fetched.
                kept.expect(number, file.size)
                pieces = PieceStream(file, max_ahead, functools.partial(kept.keep, number))
                stream = io.BufferedReader(pieces, _HEADER_BLOCK_BYTES)
            else:
                stream = window(file, block_bytes=_HEADER_BLOCK_BYTES)
            with stream:
                for member in TarArchive(name, lambda: stream, file, _LIMITS):
                    _add_member(member, shard, file, files)
        except UnsafeArchiveError:
            raise
        except ArchiveError as error:
            raise DatasetFileCorruptError(str(error)) from error
    return files


def _has_small_files(name: str, file: StreamedResource) -> bool:
    """Return whether the first files of a tar are small, on average."""
    archive = TarArchive(name, lambda: window(file, block_bytes=_HEADER_BLOCK_BYTES), file, _LIMITS)
    sizes = [member.size for member in itertools.islice(archive, _N_FIRST_FILES)]
    return sum(sizes) < _SMALL_FILE_BYTES * len(sizes)


def _add_member(
    member: ArchiveMember, shard: Location, file: StreamedResource, files: ShardFiles
) -> None:
    """Add a member of a shard to its files.

    Args:
        member: the member.
        shard: the location of the shard.
        file: the open shard.
        files: the files of the shard so far.

    Raises:
        DatasetFileCorruptError: the shard is cut short.
    """
    if member.offset + member.size > file.size:
        raise DatasetFileCorruptError(
            f"{shard.full_name!r} is cut short: {member.name!r} ends after the file"
        )
    if member.is_folder:
        return
    if is_of_sample(member.name):
        files.of_samples.append((member.name, member.offset, member.size))
    elif not _is_expected(member.name):
        files.left_out.append(LeftOut(f"{shard.name}, {member.name}", _NO_SAMPLE))


def _is_expected(path: str) -> bool:
    """Return whether a file that belongs to no sample is nothing to account for."""
    return is_hidden(path) or is_document(path.rpartition("/")[2])
