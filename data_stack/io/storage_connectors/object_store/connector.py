"""Resources in an object store or on a remote file system, as a small pointer and parts of 4 MiB.

A store is laid out below its URL like this; names that no identifier can have are ours:

- ``.data_stack/resources/a/b.gz~``: the pointer of ``a/b.gz`` (:mod:`.objects`): size, SHA-256 of the whole, digests of the
  blocks, and small content itself. Publishing is one atomic put of it;
- ``.data_stack/objects/VERSION/NUMBER``: a part, which never changes. Open readers read the parts of a replaced resource until
  garbage collection removes them after a grace period;
- ``.data_stack/leases/…`` and ``.data_stack/temporaries/…``;
- ``a/b.gz`` without a pointer is a plain file of another tool, without digests of its blocks; ``.data_stack/digests/a/b.gz~``
  holds the SHA-256 that :meth:`FsspecStorageConnector.verify_resource` found.

Plain objects with a note of their digests would need no pointer. But two writers at once could leave the note of one beside the
object of the other, as not every store has ETags; and an interrupted multipart upload leaves fragments that no listing shows.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import json
import math
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, Final, NoReturn
from urllib.parse import parse_qsl

from data_stack.exception import (
    ConfigError,
    ResourceNotFoundError,
    StorageError,
    StorageUnavailableError,
)
from data_stack.io.identifiers import (
    OWN_FOLDER,
    check_identifier,
    check_key,
    check_key_prefix,
    check_prefix,
    is_identifier,
    is_key,
)
from data_stack.io.integrity import Digest, digests_of_blocks
from data_stack.io.resources import Storable, StreamedResource, SupportedStreamedResourceTypes
from data_stack.io.storage_connectors.blocks import BlockedSource
from data_stack.io.storage_connectors.connector import (
    BINARY,
    Garbage,
    KeyOpener,
    ResourceInfo,
    StorageConnector,
)
from data_stack.io.storage_connectors.heartbeat import (
    MAX_SILENCE_SECONDS,
    HeartbeatLease,
    is_left_by_the_dead,
)
from data_stack.io.storage_connectors.lease import Lease
from data_stack.io.storage_connectors.object_store import objects
from data_stack.io.storage_connectors.object_store.errors import AccessRefusedError
from data_stack.io.storage_connectors.object_store.remote import (
    TEMPORARIES,
    RemoteFile,
    RemoteFiles,
)
from data_stack.io.storage_connectors.owners import is_dead
from data_stack.io.storage_connectors.storable import binary_chunks, in_pieces
from data_stack.io.url import StorageURL, parse_option
from data_stack.util.executor import waiting
from data_stack.util.logger import logger
from data_stack.util.suggestions import did_you_mean
from data_stack.util.untrusted_text import parse_json

_RESOURCES: Final = ".data_stack/resources"
_LEASES: Final = ".data_stack/leases"
_POINTERS_AT_ONCE: Final = 16
_MAX_NOTE_BYTES: Final = 4096
#: Resources up to this size are stored in their pointer, in one request.
_INLINE_BYTES: Final = 65_536
_RIGHTS: Final = "Without the right s3:ListBucket, a store answers so for what is missing, too: see docs/storage.md."
#: Types of the options of a URL that are not texts.
_KINDS: Final[dict[str, type]] = {
    "readOnly": bool,
    "anonymous": bool,
    "requesterPays": bool,
    "timeoutSeconds": float,
}
_S3: Final = {
    "endpointUrl": "endpoint_url", "region": "region_name", "anonymous": "anon", "profile": "profile",
    "requesterPays": "requester_pays",
}  # fmt: skip
_GS: Final = {"endpointUrl": "endpoint_url", "project": "project", "anonymous": "token"}
_AZ: Final = {"account": "account_name", "anonymous": "anon"}
_SFTP: Final = {"keyFile": "key_filename", "knownHosts": "known_hosts"}
#: By scheme, options of the query: the argument of the file system.
_OPTIONS: Final[dict[str, dict[str, str]]] = {
    "s3": _S3, "s3a": _S3, "gs": _GS, "gcs": _GS, "az": _AZ, "abfs": _AZ, "abfss": _AZ, "sftp": _SFTP, "ssh": _SFTP,
    "hdfs": {"user": "user", "kerberosTicket": "kerb_ticket"},
}  # fmt: skip


class FsspecStorageConnector(StorageConnector):
    """Keeps resources below a URL of any file system of fsspec: s3://, gs://, az://, sftp://, hdfs:// …

    The connector connects on first use, and never creates a bucket. Every block is verified on every read. Publishing is one
    atomic put where the store has it, and a rename elsewhere (on HDFS, replacing a resource removes the old pointer first).
    Threads may share a connector. Forked and spawned processes make their own connections.

    Credentials come from the environment, as the client of the store finds them, or from ``storage_options``. A pickled
    connector holds these options; no repr, log or error shows them.

    Args:
        url: scheme, bucket (or host), and folder: ``"s3://bucket/folder"``.
        read_only: never write, not even a lease.
        timeout_seconds: limit of a single request, retries included; listings may take ten times as long. HDFS and SFTP keep
            it as far as their clients do.
        storage_options: for the class of the file system, e.g. ``endpoint_url="https://…"`` for ``s3fs.S3FileSystem``.

    Raises:
        ConfigError: the URL has no bucket or host, fsspec does not know its scheme, or an option is out of range.
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
        **storage_options: Any,
    ) -> None:
        if not 0 < timeout_seconds < float("inf"):
            raise ConfigError("timeout_seconds must be a positive number")
        self._configuration = (url, read_only, timeout_seconds, storage_options)
        self._files = RemoteFiles(url, timeout_seconds, storage_options, read_only=read_only)
        self._has_warned = False

    @classmethod
    def from_url(cls, url: str) -> FsspecStorageConnector:
        """A connector as a URL with options describes it: ``"s3://bucket/folder?endpointUrl=https://…&region=eu-1"``.

        Options of every scheme: ``readOnly``, ``anonymous`` (true or false) and ``timeoutSeconds``. Besides,
        s3: ``endpointUrl``, ``region``, ``profile``, ``requesterPays``; gs: ``endpointUrl``, ``project``; az: ``account``;
        sftp: ``keyFile``, ``knownHosts`` (a file besides ``~/.ssh/known_hosts``); hdfs: ``user``, ``kerberosTicket``.

        Raises:
            ConfigError: an option is unknown or invalid. Values are never shown.
        """
        parts = StorageURL.parse(url)
        if parts is None:
            raise ConfigError("a store needs a URL with a scheme, such as s3://bucket/folder")
        place = replace(parts, query="", fragment="")
        return cls(str(place), **_parse_options(parts.scheme, parts.query.removeprefix("?")))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._files.place!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        url, read_only, timeout_seconds, options = self._configuration
        return functools.partial(
            type(self), read_only=read_only, timeout_seconds=timeout_seconds, **options
        ), (url,)

    # ------------------------------------------------------------------ contract

    def get_resource(
        self, identifier: str, resource_type: SupportedStreamedResourceTypes = BINARY
    ) -> StreamedResource:
        blocks = objects.ObjectBlocks(
            self._files, self._look_up(identifier), lambda: self._pointer(identifier)
        )
        return self._make_resource(identifier, BlockedSource(blocks), resource_type)

    def set_resource(self, identifier: str, resource: Storable) -> None:
        check_identifier(identifier)
        size = _size_of(resource)
        if size is None:
            with self.create(
                identifier
            ) as writer:  # in a temporary file, as a retry could not read the source again
                writer.writelines(binary_chunks(resource))
            return
        self._publish(self._upload(identifier, resource, size))

    def move_resource(self, identifier: str, new_identifier: str) -> None:
        check_identifier(new_identifier)
        pointer = self._pointer(identifier)
        if pointer is None:
            super().move_resource(identifier, new_identifier)
        elif identifier != new_identifier:
            self._publish(replace(pointer, identifier=new_identifier))
            self.delete_resource(identifier)

    def has_resource(self, identifier: str) -> bool:
        check_identifier(identifier)
        try:
            return any(self._files.exist([_pointer_path(identifier), identifier]))
        except AccessRefusedError as refusal:
            if self._can_read_plain(identifier, refusal):
                return True
            raise

    def delete_resource(self, identifier: str) -> None:
        # The pointer last: an interrupted deletion must not uncover the plain file that the resource replaced.
        paths = [check_identifier(identifier), _pointer_path(identifier)]
        paths = list(itertools.compress(paths, self._files.exist(paths)))
        if not paths:
            raise ResourceNotFoundError(identifier, repr(self))
        for path in paths:
            self._files.delete(path)
        if identifier in paths:
            self._files.delete(_note_path(identifier))

    def list_resources(self, prefix: str = "") -> list[str]:
        check_prefix(prefix)
        return [key for key in self._list(prefix) if is_identifier(key)]

    def list_keys(self, prefix: str = "") -> list[str]:
        check_key_prefix(prefix)
        return self._list(prefix)

    def list_links(self, prefix: str = "") -> list[str]:
        folder = check_key_prefix(prefix).rpartition("/")[0]
        return sorted(link for link in self._files.links(folder) if link.startswith(prefix))

    def has_key(self, key: str) -> bool:
        if is_identifier(key):
            return self.has_resource(key)
        return self._files.exist([check_key(key)])[0]

    def open_key(self, key: str) -> StreamedResource:
        if is_identifier(key):
            return self.get_resource(key)
        file = self._files.info(check_key(key))
        if file is None:
            raise ResourceNotFoundError(key, repr(self))
        blocks = objects.ObjectBlocks(
            self._files, objects.Pointer.adopt(key, file, None), lambda: None
        )
        return StreamedResource.from_source(key, BlockedSource(blocks), KeyOpener(self))

    def delete_key(self, key: str) -> None:
        if is_identifier(key):
            self.delete_resource(key)
            return
        if not self.has_key(key):
            raise ResourceNotFoundError(key, repr(self))
        self._files.delete(key)

    def _list(self, prefix: str) -> list[str]:
        """The keys of all resources and files of other tools that begin with ``prefix``, sorted."""
        folder = prefix.rpartition("/")[0]
        if prefix and self._files.lists_by_prefix:
            pointers, plain = waiting.map(
                self._files.beginning_with, (f"{_RESOURCES}/{prefix}", prefix), at_once=2
            )
        else:
            pointers = self._files.files(f"{_RESOURCES}/{folder}" if folder else _RESOURCES)
            plain, folders = self._files.entries(folder)  # of other tools
            for each in folders:
                if each != OWN_FOLDER and f"{each}/".startswith(prefix):
                    plain += self._files.files(each)
        keys = {_identifier_of(file.path) for file in pointers}
        keys.update(file.path for file in plain if is_key(file.path))
        return sorted(key for key in keys if key is not None and key.startswith(prefix))

    def missing_place(self) -> str | None:
        return None if self._files.has_root() else f"the folder {self._files.place}"

    def stat(self, identifier: str) -> ResourceInfo:
        pointer = self._look_up(identifier)
        file = pointer.file or self._files.info(_pointer_path(identifier))
        return ResourceInfo(
            identifier,
            pointer.size,
            pointer.sha256 or None,
            None if file is None else file.modified,
        )

    def verify_resource(self, identifier: str, sha256: str | None = None) -> ResourceInfo:
        pointer = self._look_up(identifier)
        found = super().verify_resource(identifier, sha256)
        if pointer.file is not None and pointer.sha256 != found.sha256:
            note = json.dumps({"tag": pointer.file.tag, "sha256": found.sha256}).encode()
            with contextlib.suppress(StorageError):  # without the note, it is read again
                self._files.put(_note_path(identifier), note)
        return found

    def lease(self, identifier: str) -> contextlib.AbstractContextManager[Lease]:
        path = f"{_LEASES}/{hashlib.sha256(check_identifier(identifier).encode()).hexdigest()}"
        return contextlib.closing(HeartbeatLease(self._files, path))

    # ------------------------------------------------------------------ upkeep

    def collect_garbage(
        self, grace_seconds: float = 86_400.0, *, dry_run: bool = False
    ) -> list[Garbage]:
        """Remove parts without a pointer that are older than ``grace_seconds`` by the store's clock, and abandoned leases.

        The grace period must be longer than the upload of a resource, and than the reading of a replaced one. Nothing but names
        below the store's own folders is removed, and nothing if what the store lists is in doubt.

        Raises:
            DatasetFileCorruptError: a pointer cannot be read, so its parts are unknown; nothing was removed.
            StorageError: the store could not be listed, or two listings differ in what is old; nothing was removed.
        """
        parts, leases, temporaries = (
            self._files.files(folder) for folder in (objects.OBJECTS, _LEASES, TEMPORARIES)
        )
        if not parts and not leases and not temporaries:
            return []
        now = (
            time.time() if dry_run and self._files.read_only else self._files.now()
        )  # without writing there is no other clock

        def is_old(file: RemoteFile) -> bool:
            # Rounded down, as some answers of some stores are.
            return file.modified is None or now - math.floor(file.modified) >= grace_seconds

        # The last part of a running upload is young.
        young = {os.path.dirname(file.path) for file in parts if not is_old(file)}
        useless = [
            file
            for file in parts
            if objects.is_part_path(file.path) and os.path.dirname(file.path) not in young
        ]
        if useless:
            needed = self._needed_folders(is_old)
            useless = [file for file in useless if os.path.dirname(file.path) not in needed]
        garbage = [Garbage(file.path, file.size, "no resource needs it") for file in useless]
        for file in leases:
            is_silent = file.modified is None or now - file.modified >= MAX_SILENCE_SECONDS
            if is_silent or is_left_by_the_dead(self._files.read(file.path, _MAX_NOTE_BYTES)):
                garbage.append(Garbage(file.path, file.size, "its holder is gone"))
        for file in temporaries:
            is_abandoned = (
                file.modified is not None and now - file.modified > 3600.0
            )  # writing one file takes seconds
            if is_abandoned or is_dead(os.path.basename(file.path).partition(".")[0]):
                garbage.append(Garbage(file.path, file.size, "left by a writer that died"))
        if not dry_run:
            for item in garbage:
                self._files.delete(item.name)
        return garbage

    def _needed_folders(self, is_old: Callable[[RemoteFile], bool]) -> set[str]:
        """The folders of the parts of all resources.

        The pointers are listed twice, by different requests: the first listing may miss a resource that is moved meanwhile, and
        one that a cache or gateway answered may miss all of them.

        Raises:
            StorageError: only one of the listings has a pointer that was there long before.
        """
        in_folder = {file.path: file for file in self._files.files(_RESOURCES)}
        needed = {self._folder_of(pointer) for pointer in self._pointers(in_folder)}
        everywhere = {
            file.path: file
            for file in self._files.files(".data_stack")
            if file.path.startswith(f"{_RESOURCES}/")
        }
        for pointer in self._pointers(everywhere):
            needed.add(self._folder_of(pointer))
            path = _pointer_path(pointer.identifier)
            if path not in in_folder and is_old(everywhere[path]):
                self._refuse_listings(path)
        for path in in_folder.keys() - everywhere.keys():
            if is_old(in_folder[path]) and self._files.exist([path])[0]:
                self._refuse_listings(path)
        return needed

    def _folder_of(self, pointer: objects.Pointer) -> str:
        return f"{objects.OBJECTS}/{pointer.version}"

    def _refuse_listings(self, path: str) -> NoReturn:
        raise StorageError(
            f"two listings of {self!r} differ: only one has {path!r}, which is old. Nothing was removed."
            " Check what is between this machine and the store, such as a proxy or cache, and try again."
        )

    # ------------------------------------------------------------------ pointers

    def _pointer(self, identifier: str) -> objects.Pointer | None:
        document = self._files.read(
            _pointer_path(check_identifier(identifier)), objects.MAX_POINTER_BYTES + 1
        )
        return (
            None
            if document is None
            else objects.Pointer.from_bytes(document, identifier, repr(self))
        )

    def _look_up(self, identifier: str) -> objects.Pointer:
        """The pointer of a resource, or a description of the plain file of another tool."""
        try:
            pointer = self._pointer(identifier)
        except AccessRefusedError as refusal:
            if not self._can_read_plain(identifier, refusal):
                raise
            pointer = None
        if pointer is not None:
            return pointer
        file = self._files.info(identifier)
        if file is None:
            raise ResourceNotFoundError(identifier, repr(self))
        return objects.Pointer.adopt(identifier, file, self._read_note(identifier, file))

    def _can_read_plain(self, identifier: str, refusal: AccessRefusedError) -> bool:
        """Whether a plain file may be read although the store refuses to tell whether there is a pointer.

        Without the right to list a bucket, S3 answers 403 instead of 404 to a request for what is missing.

        Raises:
            AccessRefusedError: not even the plain file may be read.
        """
        try:
            (is_there,) = self._files.exist([identifier])
        except AccessRefusedError:
            raise AccessRefusedError(f"{refusal} {_RIGHTS}", refusal.errno) from None
        if is_there and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "%r refuses access to %r; the plain file of this name is read. %s",
                self,
                _pointer_path(identifier),
                _RIGHTS,
            )
        return is_there

    def _pointers(self, paths: Iterable[str]) -> Iterator[objects.Pointer]:
        """The pointers at these paths, read many at a time.

        Raises:
            StorageError: a pointer is listed, but cannot be read.
        """
        identifiers = [
            identifier for path in paths if (identifier := _identifier_of(path)) is not None
        ]
        missing = []
        for start in range(0, len(identifiers), _POINTERS_AT_ONCE):
            group = identifiers[start : start + _POINTERS_AT_ONCE]
            documents = self._files.read_ranges(
                [(_pointer_path(each), 0, objects.MAX_POINTER_BYTES + 1) for each in group]
            )
            for identifier, document in zip(group, documents, strict=True):
                if document is None:
                    missing.append(_pointer_path(identifier))
                else:
                    yield objects.Pointer.from_bytes(document, identifier, repr(self))
        if not missing:
            return
        # They may have been deleted meanwhile; then they are listed no more.
        listed = {file.path for file in self._files.files(_RESOURCES)}
        for path in missing:
            if path in listed and not self._files.exist([path])[0]:
                raise StorageError(
                    f"{path!r} is listed in {self!r}, but missing when it is read. Nothing was removed; try again."
                )

    def _publish(self, pointer: objects.Pointer) -> None:
        path, document = _pointer_path(pointer.identifier), pointer.to_bytes()
        try:
            self._files.put(path, document)
        except StorageUnavailableError as error:
            # Perhaps only the answer was lost: look whether the pointer is there.
            with contextlib.suppress(StorageError):
                if self._files.read(path, len(document) + 1) == document:
                    return
            advice = "It is unknown whether it was published; if the request still arrives, it will be, whole."
            raise StorageUnavailableError(f"{error} {advice}", error.errno) from None

    def _read_note(self, identifier: str, file: RemoteFile) -> str | None:
        """The SHA-256 that was noted of exactly this plain file."""
        note = None
        with contextlib.suppress(
            AccessRefusedError
        ):  # as for a missing one, without the right to list
            note = self._files.read(_note_path(identifier), _MAX_NOTE_BYTES)
        with contextlib.suppress(ValueError, KeyError, TypeError):
            fields = parse_json(note or b"")
            sha256 = bytes.fromhex(fields["sha256"])
            if fields["tag"] == file.tag and len(sha256) == 32:
                return sha256.hex()
        return None

    # ------------------------------------------------------------------ storing

    def _upload(self, identifier: str, resource: Storable, size: int) -> objects.Pointer:
        """Upload the parts of a resource, a few at a time; return its unpublished pointer."""
        if size > objects.MAX_RESOURCE_BYTES:
            raise StorageError(
                f"{identifier!r} is larger than {objects.MAX_RESOURCE_BYTES >> 30} GiB, the limit of {self!r}; split it"
            )
        pieces = in_pieces(binary_chunks(resource), objects.PART_BYTES)
        first = next(pieces, b"")
        # Only the last piece is shorter than a part, so a short first piece is all.
        version = None if len(first) <= _INLINE_BYTES else secrets.token_hex(16)
        digest, blocks, block_bytes = Digest(), bytearray(), objects.block_bytes_for(size)

        def hash_pieces() -> Iterator[bytes]:
            for piece in itertools.chain([first], pieces):
                digest.update(piece)
                blocks.extend(
                    digests_of_blocks(piece, block_bytes)
                )  # a part has a whole number of blocks
                yield piece

        def store(numbered: tuple[int, bytes]) -> None:
            self._files.put(objects.part_path(version, numbered[0]), numbered[1])

        parts = enumerate(hash_pieces())
        for _ in parts if version is None else waiting.map(store, parts, at_once=3):
            pass
        inline = first if version is None else b""
        return objects.Pointer(
            identifier, digest.size, digest.sha256, block_bytes, version, bytes(blocks), inline
        )


# ---------------------------------------------------------------------- names and values


def _pointer_path(identifier: str) -> str:
    # No identifier holds "~", so the pointer of "a" is not in the way of the folder of "a/b".
    return f"{_RESOURCES}/{identifier}~"


def _note_path(identifier: str) -> str:
    return f".data_stack/digests/{identifier}~"


def _identifier_of(pointer_path: str) -> str | None:
    """The identifier of a pointer's path; None for other paths."""
    identifier = pointer_path.removeprefix(_RESOURCES + "/")[:-1]
    return identifier if pointer_path.endswith("~") and is_identifier(identifier) else None


def _size_of(resource: Storable) -> int | None:
    """The length of a resource that can be read again; None if it cannot."""
    if isinstance(resource, (bytes, bytearray, memoryview)):
        return memoryview(resource).nbytes
    file: Any = resource
    if hasattr(file, "read") and hasattr(file, "seekable") and file.seekable():
        file.seek(0, os.SEEK_END)
        return int(file.tell())
    return None


def _parse_options(scheme: str, query: str) -> dict[str, Any]:
    """Arguments of the connector by the query of a URL."""
    try:
        given = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError:
        raise ConfigError("not a URL: its query cannot be read") from None
    known = {
        "readOnly": "read_only",
        "timeoutSeconds": "timeout_seconds",
        **_OPTIONS.get(scheme, {}),
    }
    arguments: dict[str, Any] = {}
    for name, text in given:
        if name not in known:
            near, names = did_you_mean(name, known), ", ".join(sorted(known))
            raise ConfigError(f"unknown option in a {scheme}:// URL{near}; its options are {names}")
        arguments[known[name]] = parse_option(name, text, _KINDS.get(name, str))
    if "region_name" in arguments:
        arguments["client_kwargs"] = {"region_name": arguments.pop("region_name")}
    if arguments.pop("token", False):
        arguments |= {"token": "anon"}
    return arguments
