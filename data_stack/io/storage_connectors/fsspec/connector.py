"""Resources in an object store or on a remote file system, as a small pointer and parts of 4 MiB.

A store is laid out below its URL like this; names that no identifier can have are ours:

- ``.data_stack/resources/a/b.gz~``: the pointer of ``a/b.gz`` (:mod:`.pointer`): size, SHA-256 of the whole, digests of the
  blocks, and small content itself. Publishing is one atomic put of it;
- ``.data_stack/objects/VERSION/NUMBER``: a part of what was stored once under one name; it never changes. Whoever has a resource
  open reads its parts to the end, whatever is published meanwhile; garbage collection leaves them for a grace period;
- ``.data_stack/leases/…`` and ``.data_stack/temporaries/…``;
- ``a/b.gz`` without a pointer is what another tool put there. It is read as it is, its blocks without digests;
  ``.data_stack/digests/a/b.gz~`` holds the SHA-256 that :meth:`FsspecStorageConnector.verify_resource` found of it.

Plain objects with a note of their digests beside them would need no pointer, but two writers at once could leave the note of one
beside the object of the other: not all stores have a version of an object that only a put of these bytes can have. And an
interrupted upload of a large object leaves fragments behind that no listing shows.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, cast
from urllib.parse import parse_qsl

from data_stack.exception import (
    ConfigError,
    DamagedBlockError,
    DatasetFileCorruptError,
    MalformedIdentifierError,
    ReadOnlyStorageError,
    ResourceChangedError,
    ResourceNotFoundError,
    StorageError,
    StorageUnavailableError,
)
from data_stack.io.identifiers import checked_identifier, checked_prefix
from data_stack.io.integrity import ALGORITHM, BlockDigests, block_digest, digest_of_block
from data_stack.io.resources import Storable, StreamedResource, StreamedTextResource, SupportedStreamedResourceTypes
from data_stack.io.storage_connectors.blocks import BlockedSource, Blocks
from data_stack.io.storage_connectors.connector import (
    BINARY,
    DAY_SECONDS,
    Garbage,
    Lease,
    ResourceInfo,
    StorageConnector,
    StoreFinding,
    StoreUsage,
)
from data_stack.io.storage_connectors.fsspec.pointer import (
    MAX_INLINE_BYTES,
    MAX_POINTER_BYTES,
    MAX_RESOURCE_BYTES,
    PART_BYTES,
    Pointer,
    block_bytes_for,
)
from data_stack.io.storage_connectors.fsspec.remote import TEMPORARIES, RemoteFile, RemoteFiles
from data_stack.io.storage_connectors.heartbeat import HeartbeatLease
from data_stack.io.storage_connectors.owners import is_dead
from data_stack.io.storage_connectors.writer import binary_chunks, in_pieces, store_bytes
from data_stack.io.url import StorageURL
from data_stack.util.executor import waiting

_OWN_FOLDER: Final = ".data_stack"
_RESOURCES: Final = ".data_stack/resources"
_OBJECTS: Final = ".data_stack/objects"
_LEASES: Final = ".data_stack/leases"
_NOTES: Final = ".data_stack/digests"
#: Writing one file takes seconds; what is unfinished for longer has lost its writer.
_ABANDONED_SECONDS: Final = 3600.0
_LAST_LOOK_SECONDS: Final = 1.0
_MOST_UPLOADS: Final = 3
_POINTERS_AT_ONCE: Final = 32
_MOST_NOTE_BYTES: Final = 4096

#: Options of a URL's query, for all schemes and for some: the argument, or the path to it in the options of the file system.
_S3_OPTIONS: Final[dict[str, tuple[str, ...]]] = {
    "endpointUrl": ("endpoint_url",),
    "region": ("client_kwargs", "region_name"),
    "anonymous": ("anon",),
    "profile": ("profile",),
    "requesterPays": ("requester_pays",),
}
_GS_OPTIONS: Final[dict[str, tuple[str, ...]]] = {
    "endpointUrl": ("endpoint_url",),
    "project": ("project",),
    "anonymous": ("token",),
}
_AZ_OPTIONS: Final[dict[str, tuple[str, ...]]] = {"account": ("account_name",), "anonymous": ("anon",)}
_SFTP_OPTIONS: Final[dict[str, tuple[str, ...]]] = {
    "keyFile": ("key_filename",),
    "hostKeyPolicy": ("host_key_policy",),
    "knownHosts": ("known_hosts",),
}
_QUERY_OPTIONS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "s3": _S3_OPTIONS, "s3a": _S3_OPTIONS, "gs": _GS_OPTIONS, "gcs": _GS_OPTIONS,
    "az": _AZ_OPTIONS, "abfs": _AZ_OPTIONS, "abfss": _AZ_OPTIONS,
    "sftp": _SFTP_OPTIONS, "ssh": _SFTP_OPTIONS,
    "hdfs": {"user": ("user",), "kerberosTicket": ("kerb_ticket",)},
}  # fmt: skip


class FsspecStorageConnector(StorageConnector):
    """Keeps resources below a URL of any file system that fsspec knows: s3://, gs://, az://, sftp://, hdfs:// …

    Nothing is contacted before the first use, and a bucket is never made. Every block is held against its digest whenever it
    is read. Publishing is one atomic put where the store has it, and a rename elsewhere (on HDFS, replacing a resource removes
    the old pointer first). Threads may share a connector. A process that was forked or spawned connects anew.

    Credentials come from the environment, as the client of the store finds them, or from ``storage_options``. Pickling a
    connector pickles these options too, so a pickle is as secret as they are; no repr, log or error shows them.

    Args:
        url: scheme, bucket (or host), and folder: ``"s3://bucket/folder"``.
        read_only: never write, not even a lease.
        timeout_seconds: the most that a single request may take, retries included; listings may take ten times as long. File
            systems without asynchronous client (HDFS, SFTP) keep it as far as their client does.
        inline_bytes: resources up to this size (at most 1 MiB) are stored in their pointer, in one request.
        storage_options: for the class of the file system, e.g. ``endpoint_url="https://…"`` for ``s3fs.S3FileSystem``.

    Raises:
        ConfigError: the URL names no place, fsspec does not know its scheme, or an option is out of range.
        MissingDependencyError: the package for the scheme is not installed.
    """

    knows_digests = True
    checks_reads = True

    def __init__(
        self,
        url: str,
        *,
        read_only: bool = False,
        timeout_seconds: float = 30.0,
        inline_bytes: int = 65_536,
        **storage_options: Any,
    ) -> None:
        if not 0 < timeout_seconds < float("inf"):
            raise ConfigError(f"timeout_seconds must be a positive number, got {timeout_seconds!r}")
        if not 0 <= inline_bytes <= MAX_INLINE_BYTES:
            raise ConfigError(f"inline_bytes must be between 0 and {MAX_INLINE_BYTES:,}, got {inline_bytes!r}")
        self._configuration = (url, read_only, timeout_seconds, inline_bytes, storage_options)
        self._read_only, self._inline_bytes = read_only, inline_bytes
        self._files = RemoteFiles(url, timeout_seconds, storage_options)
        self._leases_seen: dict[str, tuple[bytes, float]] = {}

    @classmethod
    def from_url(cls, url: str) -> FsspecStorageConnector:
        """A connector as a URL with options describes it: ``"s3://bucket/folder?endpointUrl=https://…&region=eu-1"``.

        Options of every scheme: ``readOnly`` and ``anonymous`` (true or false), ``timeoutSeconds``, ``inlineBytes``. Besides,
        s3: ``endpointUrl``, ``region``, ``profile``, ``requesterPays``; gs: ``endpointUrl``, ``project``; az: ``account``;
        sftp: ``keyFile``, ``knownHosts`` (a file besides ``~/.ssh/known_hosts``), ``hostKeyPolicy`` (of a server whose key is in
        none: ``reject``, the default, ``warning`` or ``auto_add``); hdfs: ``user``, ``kerberosTicket``.

        Raises:
            ConfigError: an option is unknown, or has no possible value. Values are never shown.
        """
        parts = StorageURL.parse(url)
        if parts is None:
            raise ConfigError("a store is named by a URL with a scheme, such as s3://bucket/folder")
        try:
            query = parse_qsl(parts.query[1:], keep_blank_values=True, strict_parsing=bool(parts.query[1:]))
        except ValueError:
            raise ConfigError("not a URL: its query cannot be read") from None
        known = _QUERY_OPTIONS.get(parts.scheme, {})
        arguments: dict[str, Any] = {}
        options: dict[str, Any] = {}
        for name, text in query:
            if name in ("readOnly", "timeoutSeconds", "inlineBytes"):
                key = {"readOnly": "read_only", "timeoutSeconds": "timeout_seconds", "inlineBytes": "inline_bytes"}[name]
                arguments[key] = _value(name, text)
            elif name in known:
                *above, last = known[name]
                target = options
                for each in above:
                    target = target.setdefault(each, {})
                target[last] = _value(name, text)
            else:
                names = ", ".join(sorted({"readOnly", "timeoutSeconds", "inlineBytes", *known}))
                raise ConfigError(f"a {parts.scheme}:// URL has an option that is none of these: {names}")
        if "token" in options:
            options = {**options, "token": "anon"} if options["token"] else {k: v for k, v in options.items() if k != "token"}
        return cls(str(replace(parts, query="", fragment="")), **arguments, **options)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._files.place!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _made, (type(self), *self._configuration)

    # ------------------------------------------------------------------ contract

    def get_resource(self, identifier: str, resource_type: SupportedStreamedResourceTypes = BINARY) -> StreamedResource:
        pointer = self._pointer(identifier)
        blocks = self._adopted(identifier) if pointer is None else _PointedBlocks(self, pointer)
        resource = StreamedResource.sealed(identifier, BlockedSource(blocks), self)
        if resource_type is SupportedStreamedResourceTypes.STREAMED_TEXT_RESOURCE:
            return cast(StreamedResource, StreamedTextResource.from_streamed_resource(resource))
        return resource

    def set_resource(self, identifier: str, resource: Storable) -> None:
        checked_identifier(identifier)
        self._check_writable(identifier)
        size = _size_of(resource)
        if size is None:
            with self.create(identifier) as writer:  # in a temporary file, so that what cannot be read again need not be
                store_bytes(resource, writer)
            return
        self._publish(self._stored(identifier, resource, size))

    def move_resource(self, identifier: str, new_identifier: str) -> None:
        self._check_writable(checked_identifier(new_identifier))
        pointer = self._pointer(identifier)
        if pointer is None:
            super().move_resource(identifier, new_identifier)
        elif identifier != new_identifier:
            self._publish(replace(pointer, identifier=new_identifier))
            self.delete_resource(identifier)

    def has_resource(self, identifier: str) -> bool:
        checked_identifier(identifier)
        return self._files.exists(_pointer_path(identifier)) or self._files.exists(identifier)

    def delete_resource(self, identifier: str) -> None:
        # The pointer last: interrupted, we leave the resource, not what it once replaced.
        paths = [path for path in (checked_identifier(identifier), _pointer_path(identifier)) if self._files.exists(path)]
        if not paths:
            raise ResourceNotFoundError(identifier, repr(self))
        self._check_writable(identifier)
        for path in paths:
            self._files.delete(path)
        if identifier in paths:
            self._files.delete(_note_path(identifier))

    def list_resources(self, prefix: str = "") -> list[str]:
        return sorted(self._listed(prefix))

    def stat(self, identifier: str) -> ResourceInfo:
        pointer = self._pointer(identifier)
        file = self._files.info(identifier if pointer is None else _pointer_path(identifier))
        if pointer is not None:
            return ResourceInfo(identifier, pointer.size, pointer.sha256, modified=None if file is None else file.modified)
        if file is None:
            raise ResourceNotFoundError(identifier, repr(self))
        return ResourceInfo(identifier, file.size, self._noted(identifier, file), modified=file.modified)

    def verify_resource(self, identifier: str, sha256: str | None = None) -> ResourceInfo:
        adopted = None if self._pointer(identifier) is not None else self._files.info(identifier)
        found = super().verify_resource(identifier, sha256)
        if adopted is not None and not self._read_only and self._noted(identifier, adopted) != found.sha256:
            note = json.dumps({"tag": adopted.tag, "sha256": found.sha256}).encode()
            with contextlib.suppress(StorageError):  # losing it costs another reading
                self._files.put(_note_path(identifier), note)
        return found

    def lease(self, identifier: str) -> contextlib.AbstractContextManager[Lease]:
        checked_identifier(identifier)
        if self._read_only:
            return contextlib.nullcontext(Lease())
        path = f"{_LEASES}/{hashlib.sha256(identifier.encode()).hexdigest()}"
        return contextlib.closing(HeartbeatLease(self._files, path, self._leases_seen))

    def remove_abandoned(self, prefix: str = "") -> list[str]:
        """Remove unfinished files of processes of this machine that died, and of others after an hour by the store's clock.

        Object stores have none. A connector for reading only removes nothing.
        """
        checked_prefix(prefix)
        if self._read_only:
            return []
        return self._without_writer(dry_run=False)

    # ------------------------------------------------------------------ upkeep

    def collect_garbage(self, grace_seconds: float = DAY_SECONDS, *, dry_run: bool = False) -> list[Garbage]:
        """Remove parts that no pointer names and leases that nobody holds, if older than ``grace_seconds`` by the store's clock.

        The grace must be longer than a resource takes to be uploaded, and than a replaced one may still be read.

        Raises:
            DatasetFileCorruptError: a pointer cannot be read, so what it needs is unknown; nothing was removed.
        """
        if not dry_run:
            self._check_writable("garbage")
        parts, leases = self._files.files(_OBJECTS), self._files.files(_LEASES)
        if not parts and not leases and not self._files.files(TEMPORARIES):
            return []
        now = self._now()

        def is_old(file: RemoteFile) -> bool:
            # Rounded down, as some answers of some stores are.
            return file.modified is None or now - math.floor(file.modified) >= grace_seconds

        # Of an upload that is going on the last part is young.
        young = {_version_of(file.path) for file in parts if not is_old(file)}
        useless = [file for file in parts if _version_of(file.path) not in young]
        for _ in range(2):  # a resource that is moved meanwhile may be missed once
            if useless:
                needed = {pointer.version for pointer in self._pointers()}
                useless = [file for file in useless if _version_of(file.path) not in needed]
        found = [Garbage(file.path, file.size, "no resource needs it") for file in useless]
        found += [Garbage(file.path, file.size, "its holder is gone") for file in leases if is_old(file)]
        if not dry_run:
            for garbage in found:
                self._files.delete(garbage.name)
        return [
            *found,
            *(Garbage(path, None, "left by a writer that died") for path in self._without_writer(dry_run=dry_run)),
        ]

    def audit(self) -> list[StoreFinding]:
        sizes = {file.path: file.size for file in self._files.files(_OBJECTS)}
        adopted = set(self._adopted_files(""))
        findings = [
            StoreFinding(file.path, "is no pointer of ours; nothing reads it, remove it", is_fault=False)
            for file in self._files.files(_RESOURCES)
            if _identifier_of(file.path) is None
        ]
        for identifier, document in self._documents():
            try:
                pointer = Pointer.decoded(document, identifier, repr(self))
            except DatasetFileCorruptError as error:
                findings.append(StoreFinding(identifier, str(error), is_fault=True))
                continue
            if identifier in adopted:
                problem = "is stored, and another tool's file lies under the same name; the file is not read"
                findings.append(StoreFinding(identifier, problem, is_fault=False))
            for number in range(pointer.n_parts):
                part = _part_path(pointer, number)
                if sizes.get(part) != pointer.part_size(number) and self._pointer(identifier) == pointer:
                    what = "is missing" if part not in sizes else f"has {sizes[part]:,} bytes, not {pointer.part_size(number):,}"
                    problem = f"its part {number} ({part}) {what}; store the resource again from its source or a copy"
                    findings.append(StoreFinding(identifier, problem, is_fault=True))
        return findings

    def usage(self) -> StoreUsage:
        parts = {file.path: file.size for file in self._files.files(_OBJECTS)}
        pointed: dict[str, Pointer] = {pointer.identifier: pointer for pointer in self._pointers()}
        adopted = {name: file.size for name, file in self._adopted_files("").items() if name not in pointed}
        needed = {pointer.version for pointer in pointed.values()}
        resource_bytes = sum(pointer.size for pointer in pointed.values()) + sum(adopted.values())
        return StoreUsage(
            n_resources=len(pointed) + len(adopted),
            resource_bytes=resource_bytes,
            stored_bytes=resource_bytes,
            garbage_bytes=sum(size for path, size in parts.items() if _version_of(path) not in needed),
        )

    # ------------------------------------------------------------------ pointers

    def _pointer(self, identifier: str) -> Pointer | None:
        document = self._files.read(_pointer_path(checked_identifier(identifier)), MAX_POINTER_BYTES + 1)
        return None if document is None else Pointer.decoded(document, identifier, repr(self))

    def _pointers(self) -> Iterator[Pointer]:
        """All pointers of the store."""
        for identifier, document in self._documents():
            yield Pointer.decoded(document, identifier, repr(self))

    def _documents(self) -> Iterator[tuple[str, bytes]]:
        """What lies where pointers lie, with the identifiers it is for; many at a time, but not many large ones."""
        group: list[tuple[str, str]] = []
        n_bytes = 0
        for file in [*self._files.files(_RESOURCES), None]:
            if group and (file is None or len(group) == _POINTERS_AT_ONCE or n_bytes + file.size > MAX_POINTER_BYTES):
                documents = self._files.read_ranges([(path, 0, MAX_POINTER_BYTES + 1) for path, _ in group])
                for (_, identifier), document in zip(group, documents, strict=True):
                    if document is not None:  # it may have been deleted meanwhile
                        yield identifier, document
                group, n_bytes = [], 0
            if file is not None and (named := _identifier_of(file.path)) is not None:
                group.append((file.path, named))
                n_bytes += file.size

    def _publish(self, pointer: Pointer) -> None:
        path, document = _pointer_path(pointer.identifier), pointer.encoded()
        start = time.monotonic()
        try:
            self._files.put(path, document)
        except StorageUnavailableError as error:
            # The answer may be all that was lost: what counts is what is there. Of who is silent it is not asked for long.
            seconds = max(_LAST_LOOK_SECONDS, self._configuration[2] - (time.monotonic() - start))
            with contextlib.suppress(StorageError):
                if self._files.read(path, len(document) + 1, seconds) == document:
                    return
            raise StorageUnavailableError(
                f"{error} It is not known to be published: should the request still arrive, it will be, whole.", error.errno
            ) from None

    def _adopted(self, identifier: str) -> _AdoptedBlocks:
        file = self._files.info(identifier)
        if file is None:
            raise ResourceNotFoundError(identifier, repr(self))
        return _AdoptedBlocks(self._files, file, identifier, self._noted(identifier, file))

    def _noted(self, identifier: str, file: RemoteFile) -> str | None:
        """The SHA-256 that was found of exactly this file of another tool."""
        note = self._files.read(_note_path(identifier), _MOST_NOTE_BYTES)
        with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
            fields = json.loads(note or b"")
            sha256 = bytes.fromhex(fields["sha256"])
            if fields["tag"] == file.tag and len(sha256) == 32:
                return sha256.hex()
        return None

    # ------------------------------------------------------------------ storing

    def _stored(self, identifier: str, resource: Storable, size: int) -> Pointer:
        """Store all parts of a resource, a few at a time; its pointer, which is not published yet."""
        pieces = in_pieces(binary_chunks(resource), PART_BYTES)
        first = next(pieces, b"")
        whole, blocks = hashlib.sha256(first), BlockDigests(block_bytes_for(size))
        blocks.update(memoryview(first))
        n_bytes = len(first)
        pointer = Pointer(identifier, n_bytes, "", block_bytes_for(size), b"", None, first)
        if len(first) > self._inline_bytes:  # the last piece is the only short one, so what fits is all there is
            pointer = replace(pointer, version=secrets.token_hex(16), inline=b"")

            def all_pieces() -> Iterator[bytes]:
                nonlocal n_bytes
                yield first
                for piece in pieces:
                    whole.update(piece)
                    blocks.update(memoryview(piece))
                    n_bytes += len(piece)
                    if n_bytes > MAX_RESOURCE_BYTES:
                        raise StorageError(
                            f"{identifier!r} is larger than {MAX_RESOURCE_BYTES >> 30} GiB, the most that a resource in "
                            f"{self!r} may have; split it"
                        )
                    yield piece

            def store(numbered: tuple[int, bytes]) -> None:
                self._files.put(_part_path(pointer, numbered[0]), numbered[1])

            for _ in waiting.map(store, enumerate(all_pieces()), at_once=_MOST_UPLOADS):
                pass
        return replace(pointer, size=n_bytes, sha256=whole.hexdigest(), blocks=blocks.digests())

    def _check_writable(self, what: str) -> None:
        if self._read_only:
            raise ReadOnlyStorageError(f"{what!r} is not changed: {self!r} was opened for reading only")

    # ------------------------------------------------------------------ listing

    def _listed(self, prefix: str) -> set[str]:
        adopted = self._adopted_files(prefix)
        folder = prefix.rpartition("/")[0]
        pointers = self._files.files(f"{_RESOURCES}/{folder}" if folder else _RESOURCES)
        identifiers = {_identifier_of(file.path) for file in pointers} | set(adopted)
        return {identifier for identifier in identifiers if identifier is not None and identifier.startswith(prefix)}

    def _adopted_files(self, prefix: str) -> dict[str, RemoteFile]:
        """What other tools put there, by identifier."""
        folder = checked_prefix(prefix).rpartition("/")[0]
        if folder.startswith(_OWN_FOLDER):
            return {}
        found, folders = self._files.entries(folder)
        for each in folders:
            if each != _OWN_FOLDER and (each + "/").startswith(prefix):
                found += self._files.files(each)
        files = {}
        for file in found:
            with contextlib.suppress(MalformedIdentifierError):
                if file.path.startswith(prefix):
                    files[checked_identifier(file.path)] = file
        return files

    def _without_writer(self, *, dry_run: bool) -> list[str]:
        """Paths of unfinished files whose writer died, or that are too old to have one; they are removed, or only named."""
        temporaries = self._files.files(TEMPORARIES)
        if not temporaries:
            return []
        now = self._now()
        old = [
            file.path
            for file in temporaries
            if is_dead(file.path.rpartition("/")[2].partition(".")[0])
            or (file.modified is not None and now - file.modified > _ABANDONED_SECONDS)
        ]
        if not dry_run:
            for path in old:
                self._files.delete(path)
        return old

    def _now(self) -> float:
        if self._read_only:
            return time.time()  # the only clock that there is without writing
        return self._files.now()


class _PointedBlocks(Blocks):
    """The blocks that a pointer names, each checked."""

    ahead_bytes = 2 * PART_BYTES

    def __init__(self, connector: FsspecStorageConnector, pointer: Pointer) -> None:
        self._connector, self._pointer = connector, pointer
        self.size, self.block_bytes, self.sha256 = pointer.size, pointer.block_bytes, pointer.sha256

    def fetch(self, numbers: Sequence[int]) -> list[bytes]:
        if self._pointer.version is None:
            places = [number * self.block_bytes for number in numbers]
            return [self._pointer.inline[at : at + self.block_bytes] for at in places]
        found: list[bytes] = []
        runs = list(self._runs(numbers))
        pieces = self._read(runs)
        for index, (first, n_blocks) in enumerate(runs):
            piece, pieces[index] = pieces[index], None  # blocks are copies: let go of each piece as soon as it is cut up
            view = memoryview(piece or b"")
            for i in range(n_blocks):
                data = bytes(view[i * self.block_bytes : (i + 1) * self.block_bytes])
                if block_digest(data) != digest_of_block(self._pointer.blocks, first + i):
                    # It may have been damaged on its way only.
                    data = self._checked(first + i, self._read([(first + i, 1)])[0] or b"")
                found.append(data)
        return found

    def _runs(self, numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Blocks that follow each other in one part: the first one, and how many."""
        per_part = PART_BYTES // self.block_bytes
        first, n_blocks = -1, 0
        for number in numbers:
            if n_blocks and number == first + n_blocks and number % per_part:
                n_blocks += 1
                continue
            if n_blocks:
                yield first, n_blocks
            first, n_blocks = number, 1
        if n_blocks:
            yield first, n_blocks

    def _read(self, runs: Sequence[tuple[int, int]]) -> list[bytes | None]:
        ranges = []
        for first, n_blocks in runs:
            part, start = divmod(first * self.block_bytes, PART_BYTES)
            end = min(start + n_blocks * self.block_bytes, self._pointer.part_size(part))
            ranges.append((_part_path(self._pointer, part), start, end))
        return self._connector._files.read_ranges(ranges)

    def _checked(self, number: int, data: bytes) -> bytes:
        expected, actual = digest_of_block(self._pointer.blocks, number), block_digest(data)
        if actual == expected:
            return data
        identifier = self._pointer.identifier
        if not data:
            current = self._connector._pointer(identifier)
            if current != self._pointer:
                now = "nothing" if current is None else f"sha256 {current.sha256}"
                raise ResourceChangedError(identifier, f"sha256 {self.sha256}", now)
        raise DamagedBlockError(
            identifier,
            repr(self._connector),
            number,
            self.block_bytes,
            expected.hex(),
            actual.hex() if data else "of nothing: it is missing",
            ALGORITHM,
        )


class _AdoptedBlocks(Blocks):
    """A file of another tool: without digests, but of one version."""

    block_bytes = 256 << 10

    def __init__(self, files: RemoteFiles, file: RemoteFile, identifier: str, sha256: str | None) -> None:
        self._files, self._file, self._identifier = files, file, identifier
        self.size, self.sha256 = file.size, sha256
        etag = file.tag.partition("|")[0]  # the times behind it change with each copy
        self.tag = f"{etag}, {file.size} bytes" if etag else None

    def fetch(self, numbers: Sequence[int]) -> list[bytes]:
        ranges = [
            (self._identifier, number * self.block_bytes, min((number + 1) * self.block_bytes, self.size)) for number in numbers
        ]
        pieces = self._files.read_ranges(ranges)
        # Asked afterwards: if it is the same file now, it was the same file while it was read.
        file = self._files.info(self._identifier)
        if file != self._file:
            now = "nothing" if file is None else f"{file.size:,} bytes, tag {file.tag}"
            raise ResourceChangedError(self._identifier, f"{self.size:,} bytes, tag {self._file.tag}", now)
        for number, (_, start, end), piece in zip(numbers, ranges, pieces, strict=True):
            n_read = len(piece or b"")
            if n_read != end - start:
                raise DamagedBlockError(
                    self._identifier, self._files.place, number, self.block_bytes, str(end - start), str(n_read), "size"
                )
        return [piece or b"" for piece in pieces]


# ---------------------------------------------------------------------- names and values


def _made(
    cls: type[FsspecStorageConnector],
    url: str,
    read_only: bool,
    timeout_seconds: float,
    inline_bytes: int,
    options: dict[str, Any],
) -> FsspecStorageConnector:
    return cls(url, read_only=read_only, timeout_seconds=timeout_seconds, inline_bytes=inline_bytes, **options)


def _pointer_path(identifier: str) -> str:
    # No segment of an identifier holds "~", so the pointer of "a" never meets the folder of the pointer of "a/b".
    return f"{_RESOURCES}/{identifier}~"


def _note_path(identifier: str) -> str:
    return f"{_NOTES}/{identifier}~"


def _identifier_of(pointer_path: str) -> str | None:
    """The identifier that a pointer's path stands for; None if it stands for none."""
    if not pointer_path.endswith("~"):
        return None
    with contextlib.suppress(MalformedIdentifierError):
        return checked_identifier(pointer_path.removeprefix(_RESOURCES + "/")[:-1])
    return None


def _part_path(pointer: Pointer, number: int) -> str:
    return f"{_OBJECTS}/{pointer.version}/{number}"


def _version_of(part_path: str) -> str:
    return part_path.removeprefix(_OBJECTS + "/").partition("/")[0]


def _size_of(resource: Storable) -> int | None:
    """The length of what can be read more than once; None of what cannot."""
    if isinstance(resource, (bytes, bytearray, memoryview)):
        return memoryview(resource).nbytes
    file: Any = resource
    if hasattr(file, "read") and hasattr(file, "seekable") and file.seekable():
        file.seek(0, os.SEEK_END)
        return int(file.tell())
    return None


def _value(name: str, text: str) -> Any:
    if name in ("readOnly", "anonymous", "requesterPays"):
        if text.lower() not in ("true", "false"):
            raise ConfigError(f"the option {name} is true or false")
        return text.lower() == "true"
    if name in ("timeoutSeconds", "inlineBytes"):
        try:
            return float(text) if name == "timeoutSeconds" else int(text)
        except ValueError:
            raise ConfigError(f"the option {name} is a number") from None
    if not text:
        raise ConfigError(f"the option {name} has no value")
    return text
