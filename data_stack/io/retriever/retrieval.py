"""How resources arrive: from web servers, files and installed packages, verified on the way."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from data_stack.exception import (
    ChecksumMismatchError,
    ConfigError,
    CorruptSourceError,
    DatasetFileCorruptError,
    ResourceNotFoundError,
    RetrievalError,
    SeveralCorruptSourceErrors,
    SeveralRetrievalErrors,
    StorageError,
)
from data_stack.io.identifiers import is_identifier
from data_stack.io.job_threads import JobThreads
from data_stack.io.offline import is_offline as is_offline
from data_stack.io.progress import byte_bar
from data_stack.io.redaction import redact, shorten
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.retriever.file import copy_file
from data_stack.io.retriever.schemes import fetcher_of, may_be_resumed
from data_stack.io.retriever.schemes import register_scheme as register_scheme
from data_stack.io.retriever.transfer import Fetch as Fetch
from data_stack.io.retriever.transfer import SourceError as SourceError
from data_stack.io.retriever.transfer import Transfer as Transfer
from data_stack.io.retriever.transfer import looks_like_page
from data_stack.io.stand_ins import advice_for, stand_in
from data_stack.io.storage_connectors.connector import StorageConnector, info_of
from data_stack.io.storage_connectors.writer import ResourceWriter, binary_chunks
from data_stack.io.web.limits import Limits as Limits
from data_stack.io.web.limits import web_timeout
from data_stack.util.logger import logger


@dataclass(frozen=True)
class RetrievedResource:
    """A resource that is in the store now.

    Attributes:
        identifier: its name there.
        source: its source without credentials; None if it was already there.
        size: length in bytes.
        sha256: 64 hex digits; None if it was already there and the store does not know it.
        verified: whether it has the digest of its definition, or one that its source lists.
    """

    identifier: str
    source: str | None
    size: int
    sha256: str | None
    verified: bool


def retrieve(
    definitions: Iterable[ResourceDefinition],
    storage_connector: StorageConnector,
    *,
    offline: bool | None = None,
    progress: bool | None = None,
    max_parallel: int = 4,
    timeout_seconds: float | None = None,
    limits: Limits = Limits(),  # noqa: B008  # frozen
    fetchers: Mapping[str, Fetch] | None = None,
    verify_stored: bool = False,
) -> list[RetrievedResource]:
    """Bring each resource into the store, from the first of its sources that delivers the right bytes.

    A stored resource with the right digest (or any, if its definition has none) is skipped. Otherwise the sources are tried in
    order, but those of hosts that failed in this call last. Wrong bytes are fetched once more. A resource is published
    complete and verified, or not at all; one failure does not stop the others.

    Args:
        definitions: resources to retrieve.
        storage_connector: the store.
        offline: use no source that needs the network; None: as the environment variable DATA_STACK_OFFLINE says.
        progress: show a bar on stderr; None: on a terminal and in a notebook.
        max_parallel: transfers at a time.
        timeout_seconds: longest silence of a source; None: as ``DATA_STACK_WEB_TIMEOUT`` says, or 30. Less than
            ``limits.least_bytes_per_second`` counts as silence.
        limits: sizes and retries.
        fetchers: functions by scheme, ``""`` for paths; None: the built-in and registered ones.
        verify_stored: read stored resources too, and retrieve damaged ones again.

    Returns:
        One entry for each definition, in their order.

    Raises:
        RetrievalError: no source delivered a resource; for several resources, a SeveralRetrievalErrors with all of them. It is
            a DatasetFileCorruptError too if each got wrong bytes.
        StorageError: the store could not be written; running transfers were ended.
        ConfigError: two different definitions have the same identifier.
        MalformedIdentifierError: an identifier is not in the grammar. Nothing was retrieved.
    """
    definitions = list(definitions)
    timeout_seconds = web_timeout() if timeout_seconds is None else timeout_seconds
    if max_parallel < 1 or not timeout_seconds > 0:
        raise ConfigError(
            f"max_parallel and timeout_seconds must be positive, got {max_parallel} and {timeout_seconds}"
        )
    jobs: dict[str, ResourceDefinition] = {}
    for definition in definitions:
        if jobs.setdefault(definition.identifier, definition) != definition:
            raise ConfigError(
                f"two different resources are defined as {definition.identifier!r}; rename one"
            )
        if not is_identifier(definition.identifier):
            # Refuses malformed identifiers before anything is fetched, unless this store has others.
            storage_connector.has_resource(definition.identifier)
    offline = is_offline() if offline is None else offline
    run = _Retrieval(
        list(jobs.values()),
        storage_connector,
        fetchers,
        offline,
        timeout_seconds,
        limits,
        verify_stored,
    )
    with byte_bar("retrieving", progress) as draw:
        run.supervise(min(max_parallel, len(jobs)), draw)
    return [run.results[definition.identifier] for definition in definitions]


def import_file(
    definition: ResourceDefinition | str,
    path: str | os.PathLike[str],
    storage_connector: StorageConnector,
    *,
    sha256: str | None = None,
    md5_sum: str | None = None,
) -> RetrievedResource:
    """Verify and store a file that was downloaded by other means; replaces a stored one.

    Args:
        definition: the resource, or just its identifier.
        path: the file.
        storage_connector: the store.
        sha256: expected digest, if the definition has none.
        md5_sum: the same.

    Raises:
        ChecksumMismatchError: it has another digest; nothing was stored.
        RetrievalError: it cannot be read.
        ConfigError: the definition has other digests than the arguments.
    """
    if isinstance(definition, str):
        definition = ResourceDefinition(definition, "")
    for name, digest in (("sha256", sha256), ("md5_sum", md5_sum)):
        known = getattr(definition, name)
        if digest is not None and known is not None and digest.lower() != known:
            raise ConfigError(
                f"{definition.identifier!r} is defined with {name} {known}, not {digest.lower()}"
            )
    path = os.fspath(path)
    sha256, md5_sum = definition.sha256 or sha256, definition.md5_sum or md5_sum
    definition = replace(definition, source=path, mirrors=(), sha256=sha256, md5_sum=md5_sum)
    try:
        return _deliver(definition, path, copy_file, storage_connector, Transfer)
    except SourceError as error:
        raise RetrievalError(definition.identifier, [(shorten(path), str(error))]) from error


# ---------------------------------------------------------------------- one call


@dataclass
class _Retrieval:
    """One call of ``retrieve()``: the calling thread supervises, other threads transfer, so that Ctrl-C can end them."""

    jobs: Sequence[ResourceDefinition]
    connector: StorageConnector
    fetchers: Mapping[str, Fetch] | None
    offline: bool
    timeout_seconds: float
    limits: Limits
    verify_stored: bool

    def __post_init__(self) -> None:
        self.results: dict[str, RetrievedResource] = {}
        self._failures: dict[str, RetrievalError] = {}
        self._transfers: dict[str, Transfer] = {}
        self._failed_hosts: set[str] = set()
        self._workers: JobThreads[ResourceDefinition]

    def supervise(self, n_threads: int, draw: Callable[[int, int], None]) -> None:
        """Do all jobs."""

        def look() -> None:
            under_way, sizes = (
                list(self._transfers.values()),
                [each.size for each in list(self.results.values())],
            )
            n_bytes = sum(sizes) + sum(transfer.size for transfer in under_way)
            draw(
                n_bytes,
                sum(sizes)
                + sum(max(transfer.size, transfer.expected_size or 0) for transfer in under_way),
            )

        def end() -> None:
            for transfer in list(self._transfers.values()):
                transfer.end()

        self._workers = JobThreads(self.jobs, self._work, n_threads)
        # How long an interruption waits for threads; one that waits for a hanging disk is left behind.
        self._workers.run(look, end, patience_seconds=5.0)
        failures = [
            self._failures[job.identifier] for job in self.jobs if job.identifier in self._failures
        ]
        if len(failures) == 1:
            raise failures[0]
        if failures:
            are_corrupt = all(isinstance(failure, CorruptSourceError) for failure in failures)
            raise (SeveralCorruptSourceErrors if are_corrupt else SeveralRetrievalErrors)(failures)

    def _work(self, job: ResourceDefinition) -> None:
        try:
            self.results[job.identifier] = self._store(job) or self._fetch(job)
        except RetrievalError as error:
            self._failures[job.identifier] = error
        finally:
            self._transfers.pop(job.identifier, None)

    def _store(self, definition: ResourceDefinition) -> RetrievedResource | None:
        """The stored resource; None if it is missing or wrong."""
        identifier, promised = definition.identifier, _promises(definition)
        try:
            info = info_of(self.connector, identifier)
            if info is None:
                return None
            if self.verify_stored:
                info = self.connector.verify_resource(identifier)
            actual: dict[str, Any] = {"size": info.size, "sha256": info.sha256}
            algorithm = "sha256" if "sha256" in promised else "md5"
            if (
                algorithm in promised
                and not actual.get(algorithm)
                and definition.size in (None, info.size)
            ):
                actual[algorithm] = self._hash_of_stored(identifier, algorithm)
        except ResourceNotFoundError:
            return None  # deleted meanwhile
        except DatasetFileCorruptError as error:
            logger.warning("stored resource %r is retrieved again: %s", identifier, error)
            return None
        for name, value in actual.items():
            if value is not None and promised.get(name, value) != value:
                message = "stored resource %r has %s %s, expected %s; it is retrieved again"
                logger.warning(message, identifier, name, value, promised[name])
                return None
        return RetrievedResource(
            identifier, None, info.size, actual["sha256"], bool(promised.keys() - {"size"})
        )

    def _hash_of_stored(self, identifier: str, algorithm: str) -> str:
        digest = hashlib.new(algorithm, usedforsecurity=False)
        with self.connector.get_resource(identifier) as resource:
            for chunk in binary_chunks(resource):
                digest.update(chunk)
                self._workers.check()
        return digest.hexdigest()

    def _fetch(self, definition: ResourceDefinition) -> RetrievedResource:
        """Fetch the resource from the first source that delivers it."""
        attempts: list[tuple[str, str]] = []
        is_corrupt = False
        sources = [
            os.fsdecode(source) for source in definition.sources
        ]  # a path may have come as a Path
        # Stable: the order of the definition, but for hosts that have failed.
        sources.sort(key=lambda source: _host(source) in self._failed_hosts)
        for source in sources:
            reasons: list[str] = []
            try:
                fetch, is_local = fetcher_of(source, self.fetchers, offline=self.offline)
                for _ in range(1 if is_local else 2):
                    try:
                        return _deliver(definition, source, fetch, self.connector, self._begin)
                    except ChecksumMismatchError as error:
                        is_corrupt = True
                        transfer = self._transfers[definition.identifier]
                        reasons.append(_describe_wrong_bytes(error, transfer))
            except SourceError as error:
                reasons.append(redact(str(error), source))
            attempts.append((shorten(source), "; then ".join(dict.fromkeys(reasons))))
            # The error will report the last source, and offline ones.
            level = logging.INFO if self.offline or source == sources[-1] else logging.WARNING
            logger.log(
                level,
                "could not retrieve resource %r from %s: %s",
                definition.identifier,
                *attempts[-1],
            )
            if (host := _host(source)) is not None:
                self._failed_hosts.add(host)
            self._workers.check()
        expected = (
            ", ".join(f"{name} {value}" for name, value in _promises(definition).items()) or None
        )
        raise (CorruptSourceError if is_corrupt else RetrievalError)(
            definition.identifier, attempts, expected
        )

    def _begin(self, definition: ResourceDefinition, writer: ResourceWriter) -> Transfer:
        transfer = Transfer(
            definition, writer, timeout_seconds=self.timeout_seconds, limits=self.limits
        )
        self._transfers[definition.identifier] = transfer
        self._workers.check()
        return transfer


def _deliver(
    definition: ResourceDefinition,
    source: str,
    fetch: Fetch,
    connector: StorageConnector,
    begin: Callable[..., Transfer],
) -> RetrievedResource:
    """Store the bytes of ``source`` if they match the definition.

    Raises:
        ChecksumMismatchError: they do not; nothing was stored.
        SourceError: the source failed; nothing was stored.
        StorageError: the store could not be written.
    """
    identifier, verified = definition.identifier, bool(definition.sha256 or definition.md5_sum)
    try:
        if may_be_resumed(fetch, has_digest=verified):
            promised = (source, identifier, definition.size, definition.sha256, definition.md5_sum)
            created = connector.create_resumable(
                identifier, hashlib.sha256(repr(promised).encode()).hexdigest()[:32]
            )
        else:
            created = connector.create(identifier)
        with created as writer:
            transfer = begin(definition, writer)
            try:
                fetch(source, transfer)
            except (SourceError, StorageError):
                raise
            except Exception as error:  # noqa: BLE001  # fetchers may raise anything
                raise SourceError(f"{type(error).__name__}: {error}"[:300]) from None
            transfer.check()
            verified = verified or transfer.is_verified
            if not verified:  # else the digest decides
                _check_no_stand_in(transfer, identifier)
            writer.close()
            actual = {
                "size": transfer.size,
                "sha256": writer.digest.sha256,
                "md5": transfer.hash_by("md5").hexdigest(),
            }
            for name, expected in _promises(definition).items():
                if expected != actual[name]:
                    raise ChecksumMismatchError(
                        identifier, shorten(source), str(expected), str(actual[name]), name
                    )
            if transfer.listed_digest is not None:
                algorithm, expected = transfer.listed_digest
                found = transfer.hash_by(algorithm).hexdigest()
                if found != expected:
                    raise ChecksumMismatchError(
                        identifier, shorten(source), expected, found, algorithm
                    )
                verified = True
    except OSError as error:
        if isinstance(error, StorageError):
            raise
        raise StorageError(
            f"could not store {identifier!r}: {error.strerror or error}", error.errno
        ) from error
    if not verified:
        logger.warning(
            "resource %r has no digest: its bytes from %s are stored unverified%s",
            identifier,
            shorten(source),
            "" if transfer.has_end else ", and the server did not say where they end",
        )
    logger.info(
        "retrieved resource %r from %s, %d bytes", identifier, shorten(source), writer.digest.size
    )
    return RetrievedResource(
        identifier, shorten(source), writer.digest.size, writer.digest.sha256, verified
    )


def _check_no_stand_in(transfer: Transfer, identifier: str) -> None:
    """Check that a source did not send a page, an error answer or a pointer of Git LFS instead of a file without digest.

    Raises:
        SourceError: it did.
    """
    kind = stand_in(transfer.head, identifier, transfer.size)
    if kind is not None:
        raise SourceError(f"sent {kind}, not the file. {advice_for(kind, transfer.head)}")


def _describe_wrong_bytes(error: ChecksumMismatchError, transfer: Transfer) -> str:
    """What a source sent instead of the bytes of the definition."""
    reason = f"sent {error.algorithm} {error.actual}, expected {error.expected}"
    if looks_like_page(transfer.head):
        reason += ", in an HTML page"
    if transfer.encoding is not None:
        reason += (
            f"; the server says Content-Encoding: {transfer.encoding}, which was not requested and is"
            " not undone: the expected digest may be that of the decoded file."
            f" Define the digest of the {transfer.encoding} file, or name a source that sends it as it is"
        )
    return reason


def _promises(definition: ResourceDefinition) -> dict[str, Any]:
    """The expected size and digests that are known."""
    promises = {"sha256": definition.sha256, "md5": definition.md5_sum, "size": definition.size}
    return {name: value for name, value in promises.items() if value is not None}


def _host(source: str) -> str | None:
    """Host and port of a source; None for local sources."""
    try:
        return urlsplit(source).netloc.rpartition("@")[2].lower() or None
    except ValueError:
        return None
