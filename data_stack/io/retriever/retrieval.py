"""Retrieves resources: each from the first of its sources that delivers the right bytes."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final
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
)
from data_stack.io.identifiers import is_identifier
from data_stack.io.job_threads import JobThreads
from data_stack.io.offline import is_offline
from data_stack.io.progress import byte_bar
from data_stack.io.redaction import hide_credentials, redact
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.retriever.delivery import RetrievedResource, deliver
from data_stack.io.retriever.file import copy_file
from data_stack.io.retriever.schemes import Fetcher, fetcher_of
from data_stack.io.retriever.transfer import Fetch, SourceError, Transfer, looks_like_page
from data_stack.io.storage_connectors.connector import StorageConnector, info_of
from data_stack.io.storage_connectors.storable import binary_chunks
from data_stack.io.storage_connectors.writer import ResourceWriter
from data_stack.io.web.limits import Limits, web_timeout
from data_stack.util.logger import logger

#: How long an interruption waits for the threads. One that waits for a hanging disk is left behind.
_PATIENCE_SECONDS: Final = 5.0
#: Wrong bytes of a remote source may be a fault on the way, so they are fetched once more.
_MAX_REMOTE_TRIES: Final = 2


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
    """Bring each resource into the store, from the first source that delivers the right bytes.

    A stored resource with the right digest (or any, if its definition has none) is skipped.
    Otherwise the sources are tried in order, but those of hosts that failed in this call last.
    Wrong bytes are fetched once more. A resource is published complete and verified, or not at all;
    one failure does not stop the others.

    Args:
        definitions: resources to retrieve.
        storage_connector: the store.
        offline: use no source that needs the network; None: as the environment variable
            DATA_STACK_OFFLINE says.
        progress: show a bar on stderr; None: on a terminal and in a notebook.
        max_parallel: transfers at a time.
        timeout_seconds: longest silence of a source; None: as ``DATA_STACK_WEB_TIMEOUT`` says, or
            30. Less than ``limits.min_bytes_per_second`` counts as silence.
        limits: sizes and retries.
        fetchers: functions by scheme, ``""`` for paths; None: the built-in and registered ones.
        verify_stored: read stored resources too, and retrieve damaged ones again.

    Returns:
        One entry for each definition, in their order.

    Raises:
        RetrievalError: no source delivered a resource; for several resources, a
            SeveralRetrievalErrors with all of them. It is a DatasetFileCorruptError too if each got
            wrong bytes.
        StorageError: the store could not be written; running transfers were ended.
        ConfigError: two different definitions have the same identifier.
        MalformedIdentifierError: an identifier is not in the grammar. Nothing was retrieved.
    """
    definitions = list(definitions)
    if timeout_seconds is None:
        timeout_seconds = web_timeout()
    if offline is None:
        offline = is_offline()
    if max_parallel < 1 or not timeout_seconds > 0:
        raise ConfigError(
            "max_parallel and timeout_seconds must be positive, "
            f"got {max_parallel} and {timeout_seconds}"
        )
    distinct = _distinct_definitions(definitions)
    for identifier in distinct:
        if not is_identifier(identifier):
            # Refuses malformed identifiers before anything is fetched, unless this store has
            # others.
            storage_connector.has_resource(identifier)

    # Other threads transfer, and this one waits for them, so that Ctrl-C can end them.
    run = _RetrievalRun(
        storage_connector,
        fetches=fetchers,
        offline=offline,
        timeout_seconds=timeout_seconds,
        limits=limits,
        verify_stored=verify_stored,
    )
    threads = JobThreads(distinct.values(), run.retrieve_and_note, min(max_parallel, len(distinct)))
    # The threads call the run, and the run asks the threads whether its results are still wanted.
    run.check_wanted = threads.check
    with byte_bar("retrieving", progress) as draw:
        threads.run(
            lambda: draw(*run.count_bytes()),
            run.end_transfers,
            patience_seconds=_PATIENCE_SECONDS,
        )

    _raise_failures([run.failures[name] for name in distinct if name in run.failures])
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
        sha256: expected SHA-256, if the definition has none.
        md5_sum: expected MD5, if the definition has none.

    Raises:
        ChecksumMismatchError: the file has another digest; nothing was stored.
        RetrievalError: the file cannot be read.
        ConfigError: the definition has other digests than the arguments.
    """
    if isinstance(definition, str):
        definition = ResourceDefinition(definition, "")
    path = os.fspath(path)
    definition = replace(
        definition,
        source=path,
        mirrors=(),
        sha256=_one_digest(definition, "sha256", definition.sha256, sha256),
        md5_sum=_one_digest(definition, "md5_sum", definition.md5_sum, md5_sum),
    )
    try:
        return deliver(definition, path, copy_file, storage_connector)
    except SourceError as error:
        raise RetrievalError(
            definition.identifier, [(hide_credentials(path), str(error))]
        ) from error


def _distinct_definitions(
    definitions: Iterable[ResourceDefinition],
) -> dict[str, ResourceDefinition]:
    """Return the definitions by their identifiers, each once.

    Raises:
        ConfigError: two different definitions have the same identifier.
    """
    distinct = dict[str, ResourceDefinition]()
    for definition in definitions:
        first = distinct.setdefault(definition.identifier, definition)
        if first != definition:
            raise ConfigError(
                f"two different resources are defined as {definition.identifier!r}; rename one"
            )
    return distinct


def _one_digest(
    definition: ResourceDefinition, name: str, defined: str | None, given: str | None
) -> str | None:
    """Return the digest of a definition, or else the given one.

    Raises:
        ConfigError: there are two, and they differ.
    """
    if defined is None or given is None:
        return defined or given
    if given.lower() != defined:
        raise ConfigError(
            f"{definition.identifier!r} is defined with {name} {defined}, not {given.lower()}"
        )
    return defined


def _raise_failures(failures: list[RetrievalError]) -> None:
    """Raise the errors of resources as one; nothing if there are none."""
    if not failures:
        return
    if len(failures) == 1:
        raise failures[0]
    if all(isinstance(failure, CorruptSourceError) for failure in failures):
        raise SeveralCorruptSourceErrors(failures)
    raise SeveralRetrievalErrors(failures)


@dataclass(frozen=True, slots=True)
class _FailedAttempt:
    """What went wrong with a source.

    Attributes:
        reasons: what happened in each try, without credentials.
        sent_wrong_bytes: whether it delivered other bytes than those of the definition.
    """

    reasons: list[str]
    sent_wrong_bytes: bool


class _RetrievalRun:
    """One call of :func:`retrieve`; threads retrieve different resources at a time.

    Attributes:
        results: the resources that are in the store now, by identifier.
        failures: the errors of those that are not.
        check_wanted: raises if the results are not wanted any more.
    """

    results: dict[str, RetrievedResource]
    failures: dict[str, RetrievalError]
    check_wanted: Callable[[], None]
    #: The transfers under way, by identifier.
    _transfers: dict[str, Transfer]
    #: Hosts of sources that failed in this call.
    _failed_hosts: set[str]

    def __init__(
        self,
        connector: StorageConnector,
        *,
        fetches: Mapping[str, Fetch] | None,
        offline: bool,
        timeout_seconds: float,
        limits: Limits,
        verify_stored: bool,
    ) -> None:
        self._connector = connector
        self._fetches = fetches
        self._offline = offline
        self._timeout_seconds = timeout_seconds
        self._limits = limits
        self._verify_stored = verify_stored
        self.results = {}
        self.failures = {}
        self._transfers = {}
        self._failed_hosts = set()

    # ------------------------------------------------------------------ for the calling thread

    def count_bytes(self) -> tuple[int, int]:
        """Return how many bytes have arrived, and how many are expected as far as is known."""
        n_arrived = 0
        n_expected = 0
        for resource in list(self.results.values()):
            n_arrived += resource.size
            n_expected += resource.size
        for transfer in list(self._transfers.values()):
            n_arrived += transfer.size
            n_expected += max(transfer.size, transfer.expected_size or 0)
        return n_arrived, n_expected

    def end_transfers(self) -> None:
        """Make the transfers under way fail at their next step."""
        for transfer in list(self._transfers.values()):
            transfer.end()

    # ------------------------------------------------------------------ for the other threads

    def retrieve_and_note(self, definition: ResourceDefinition) -> None:
        """Retrieve one resource, and note the result or the error."""
        try:
            self.results[definition.identifier] = self.retrieve_one(definition)
        except RetrievalError as error:
            self.failures[definition.identifier] = error
        finally:
            self._transfers.pop(definition.identifier, None)

    def retrieve_one(self, definition: ResourceDefinition) -> RetrievedResource:
        """Return a resource that is stored, or bring it into the store.

        Raises:
            RetrievalError: no source delivered it.
            StorageError: the store could not be written.
        """
        stored = self._find_stored(definition)
        if stored is not None:
            return stored

        attempts = list[tuple[str, str]]()
        is_corrupt = False
        sources = self._sources_in_order(definition)
        for source in sources:
            outcome = self._try_source(definition, source)
            if isinstance(outcome, RetrievedResource):
                return outcome

            is_corrupt = is_corrupt or outcome.sent_wrong_bytes
            reason = "; then ".join(dict.fromkeys(outcome.reasons))
            attempts.append((hide_credentials(source), reason))
            self._note_failed_source(definition, source, reason, is_last=source == sources[-1])
            self.check_wanted()

        error_class = CorruptSourceError if is_corrupt else RetrievalError
        raise error_class(definition.identifier, attempts, _describe_expected(definition))

    def _try_source(
        self, definition: ResourceDefinition, source: str
    ) -> RetrievedResource | _FailedAttempt:
        """Bring a resource into the store, if the source delivers the right bytes."""
        reasons = list[str]()
        sent_wrong_bytes = False
        try:
            fetcher = fetcher_of(source, self._fetches, offline=self._offline)
            for _ in range(_n_tries(fetcher)):
                try:
                    return deliver(
                        definition, source, fetcher.fetch, self._connector, self._begin_transfer
                    )
                except ChecksumMismatchError as error:
                    sent_wrong_bytes = True
                    transfer = self._transfers[definition.identifier]
                    reasons.append(_describe_wrong_bytes(error, transfer))
        except SourceError as error:
            reasons.append(redact(str(error), source))
        return _FailedAttempt(reasons, sent_wrong_bytes)

    def _begin_transfer(self, definition: ResourceDefinition, writer: ResourceWriter) -> Transfer:
        """Make a transfer, which the calling thread can see and end from now on."""
        transfer = Transfer(
            definition, writer, timeout_seconds=self._timeout_seconds, limits=self._limits
        )
        self._transfers[definition.identifier] = transfer
        # The end of the transfers may have come before this one was among them.
        self.check_wanted()
        return transfer

    # ------------------------------------------------------------------ what is stored

    def _find_stored(self, definition: ResourceDefinition) -> RetrievedResource | None:
        """Return the stored resource; None if it is missing or not the one of the definition."""
        identifier = definition.identifier
        try:
            info = info_of(self._connector, identifier)
            if info is None:
                return None
            if self._verify_stored:
                info = self._connector.verify_resource(identifier)
            sha256 = info.sha256
            md5 = None

            # Where the store does not know the digest of the definition, the resource is read.
            has_right_size = definition.size in (None, info.size)
            if has_right_size and definition.sha256 is not None and not sha256:
                sha256 = self._hash_stored(identifier, "sha256")
            elif has_right_size and definition.sha256 is None and definition.md5_sum is not None:
                md5 = self._hash_stored(identifier, "md5")
        except ResourceNotFoundError:
            return None  # deleted meanwhile
        except DatasetFileCorruptError as error:
            logger.warning("stored resource %r is retrieved again: %s", identifier, error)
            return None

        for name, actual, expected in (
            ("size", info.size, definition.size),
            ("sha256", sha256, definition.sha256),
            ("md5", md5, definition.md5_sum),
        ):
            if actual is None or expected is None or actual == expected:
                continue
            logger.warning(
                "stored resource %r has %s %s, expected %s; it is retrieved again",
                identifier,
                name,
                actual,
                expected,
            )
            return None
        is_verified = bool(definition.sha256 or definition.md5_sum)
        return RetrievedResource(identifier, None, info.size, sha256, is_verified)

    def _hash_stored(self, identifier: str, algorithm: str) -> str:
        """Read a stored resource, and return its digest."""
        digest = hashlib.new(algorithm, usedforsecurity=False)
        with self._connector.get_resource(identifier) as resource:
            for chunk in binary_chunks(resource):
                digest.update(chunk)
                self.check_wanted()
        return digest.hexdigest()

    # ------------------------------------------------------------------ sources

    def _sources_in_order(self, definition: ResourceDefinition) -> list[str]:
        """Return the sources in the order of the definition, but those of failed hosts last."""
        # A path may have come as a Path.
        sources = [os.fsdecode(source) for source in definition.sources]
        return sorted(sources, key=lambda source: _host_of(source) in self._failed_hosts)

    def _note_failed_source(
        self, definition: ResourceDefinition, source: str, reason: str, *, is_last: bool
    ) -> None:
        # The error will report the last source, and all sources that are not tried offline.
        level = logging.INFO if self._offline or is_last else logging.WARNING
        logger.log(
            level,
            "could not retrieve resource %r from %s: %s",
            definition.identifier,
            hide_credentials(source),
            reason,
        )
        host = _host_of(source)
        if host is not None:
            self._failed_hosts.add(host)


def _n_tries(fetcher: Fetcher) -> int:
    """Return how often wrong bytes are fetched."""
    return 1 if fetcher.is_local else _MAX_REMOTE_TRIES


def _describe_wrong_bytes(error: ChecksumMismatchError, transfer: Transfer) -> str:
    """Return what a source sent instead of the bytes of the definition."""
    reason = f"sent {error.algorithm} {error.actual}, expected {error.expected}"
    if looks_like_page(transfer.head):
        reason += ", in an HTML page"
    if transfer.encoding is not None:
        reason += (
            f"; the server says Content-Encoding: {transfer.encoding}, which was not requested and "
            "is not undone: the expected digest may be that of the decoded file. Define the digest "
            f"of the {transfer.encoding} file, or name a source that sends it as it is"
        )
    return reason


def _describe_expected(definition: ResourceDefinition) -> str | None:
    """Return the digests and the size of a definition for a message; None if it has none."""
    facts = []
    if definition.sha256 is not None:
        facts.append(f"sha256 {definition.sha256}")
    if definition.md5_sum is not None:
        facts.append(f"md5 {definition.md5_sum}")
    if definition.size is not None:
        facts.append(f"size {definition.size}")
    return ", ".join(facts) or None


def _host_of(source: str) -> str | None:
    """Return host and port of a source; None for a source on this machine."""
    try:
        authority = urlsplit(source).netloc
    except ValueError:
        return None
    host_and_port = authority.rpartition("@")[2].lower()
    return host_and_port or None
