"""Retrieves resources: each from the first of its sources that delivers the right bytes."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from data_stack.exception import (
    ChecksumMismatchError,
    ConfigError,
    CorruptSourceError,
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
from data_stack.io.retriever.schemes import handler_of
from data_stack.io.retriever.stored_resource import find_stored_resource
from data_stack.io.retriever.transfer import Fetch, SourceError, Transfer, looks_like_page
from data_stack.io.storage_connectors.connector import StorageConnector
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

    A stored resource with the right digest is not retrieved again. If its definition has no digest,
    any stored bytes are right. Otherwise its sources are tried in order; sources of a host that
    failed in this call are tried last. If a remote source delivers wrong bytes, they are fetched
    once more. A resource is published complete and verified, or not at all. If one resource fails,
    the others are retrieved all the same.

    Args:
        definitions: resources to retrieve.
        storage_connector: the store.
        offline: use no source that needs the network; None: as the environment variable
            DATA_STACK_OFFLINE says.
        progress: show a bar on stderr; None: on a terminal and in a notebook.
        max_parallel: how many resources are transferred at a time.
        timeout_seconds: longest silence of a source; None: as ``DATA_STACK_WEB_TIMEOUT`` says, or
            30. Fewer bytes than ``limits.min_bytes_per_second`` count as silence.
        limits: limits of sizes, retries and pauses.
        fetchers: fetchers by scheme, ``""`` for paths; None: the built-in and registered ones.
        verify_stored: read stored resources too, and retrieve damaged ones again.

    Returns:
        One entry for each definition, in their order.

    Raises:
        RetrievalError: no source delivered a resource. If several resources failed, it is a
            SeveralRetrievalErrors with the errors of all. If a source of each of them sent wrong
            bytes, it is a DatasetFileCorruptError too.
        StorageError: the store could not be written; running transfers were ended.
        ConfigError: two different definitions have the same identifier, or ``max_parallel`` or
            ``timeout_seconds`` is not positive. Nothing was retrieved.
        MalformedIdentifierError: the store refuses an identifier. Nothing was retrieved.
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
    _check_identifiers(distinct, storage_connector)

    run = _RetrievalRun(
        storage_connector,
        fetchers=fetchers,
        offline=offline,
        timeout_seconds=timeout_seconds,
        limits=limits,
        verify_stored=verify_stored,
    )
    threads = JobThreads(distinct.values(), run.retrieve_and_note, max_parallel)
    # The threads call the run, and the run asks the threads whether its results are still wanted.
    run.check_wanted = threads.check
    with byte_bar("retrieving", progress) as draw:

        def draw_progress() -> None:
            n_arrived, n_expected = run.count_bytes()
            draw(n_arrived, n_expected)

        # Other threads transfer, and this one waits for them, so that Ctrl-C can end them.
        threads.run(tick=draw_progress, end=run.end_transfers, patience_seconds=_PATIENCE_SECONDS)

    _raise_failures(
        [run.failures[identifier] for identifier in distinct if identifier in run.failures]
    )
    return [run.results[definition.identifier] for definition in definitions]


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


def _check_identifiers(identifiers: Iterable[str], connector: StorageConnector) -> None:
    """Check that a store can have resources of these names, before anything is fetched.

    A store of a third party may accept names that are not in our grammar. So the store is asked
    about those: ``has_resource()`` raises the error of a malformed identifier.

    Raises:
        MalformedIdentifierError: the store refuses a name.
    """
    for identifier in identifiers:
        if not is_identifier(identifier):
            connector.has_resource(identifier)


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

    @property
    def reason(self) -> str:
        """All reasons in one text; a reason that repeats is said once."""
        distinct_reasons = dict.fromkeys(self.reasons)
        return "; then ".join(distinct_reasons)


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
        fetchers: Mapping[str, Fetch] | None,
        offline: bool,
        timeout_seconds: float,
        limits: Limits,
        verify_stored: bool,
    ) -> None:
        self._connector = connector
        self._fetchers = fetchers
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
        stored = find_stored_resource(
            definition,
            self._connector,
            verify=self._verify_stored,
            check_wanted=self.check_wanted,
        )
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
            attempts.append((hide_credentials(source), outcome.reason))
            is_last = source == sources[-1]
            self._log_failed_source(definition, source, outcome.reason, is_last=is_last)
            host = _host_of(source)
            if host is not None:
                self._failed_hosts.add(host)
            self.check_wanted()

        expected = _describe_expected(definition)
        if is_corrupt:
            raise CorruptSourceError(definition.identifier, attempts, expected)
        raise RetrievalError(definition.identifier, attempts, expected)

    def _try_source(
        self, definition: ResourceDefinition, source: str
    ) -> RetrievedResource | _FailedAttempt:
        """Bring a resource into the store, if the source delivers the right bytes."""
        reasons = list[str]()
        sent_wrong_bytes = False
        try:
            handler = handler_of(source, self._fetchers, offline=self._offline)
        except SourceError as error:
            return _FailedAttempt([redact(str(error), source)], sent_wrong_bytes)

        n_tries = 1 if handler.is_local else _MAX_REMOTE_TRIES
        for _ in range(n_tries):
            try:
                return deliver(
                    definition, source, handler.fetch, self._connector, self._begin_transfer
                )
            except ChecksumMismatchError as error:
                sent_wrong_bytes = True
                transfer = self._transfers[definition.identifier]
                reasons.append(_describe_wrong_bytes(error, transfer))
            except SourceError as error:
                reasons.append(redact(str(error), source))
                break
        return _FailedAttempt(reasons, sent_wrong_bytes)

    def _begin_transfer(self, definition: ResourceDefinition, writer: ResourceWriter) -> Transfer:
        """Make a transfer, which the thread that called :func:`retrieve` can watch and end."""
        transfer = Transfer(
            definition, writer, timeout_seconds=self._timeout_seconds, limits=self._limits
        )
        self._transfers[definition.identifier] = transfer
        # end_transfers() may have run just before, without this transfer.
        self.check_wanted()
        return transfer

    # ------------------------------------------------------------------ sources

    def _sources_in_order(self, definition: ResourceDefinition) -> list[str]:
        """Return the sources in the order of the definition, but those of failed hosts last."""
        # A path may have come as a Path.
        sources = [os.fsdecode(source) for source in definition.sources]
        return sorted(sources, key=lambda source: _host_of(source) in self._failed_hosts)

    def _log_failed_source(
        self, definition: ResourceDefinition, source: str, reason: str, *, is_last: bool
    ) -> None:
        """Log why a source failed: as a warning if the user would not see it otherwise.

        If all sources fail, an error reports them. So the last one needs no warning, and offline
        none does, as no remote source is tried.
        """
        level = logging.WARNING
        if is_last or self._offline:
            level = logging.INFO
        logger.log(
            level,
            "could not retrieve resource %r from %s: %s",
            definition.identifier,
            hide_credentials(source),
            reason,
        )


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
