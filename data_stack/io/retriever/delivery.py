"""Brings a resource from one of its sources into a store."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from data_stack.exception import ChecksumMismatchError, StorageError
from data_stack.io.redaction import hide_credentials, redact
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.retriever.schemes import may_be_resumed
from data_stack.io.retriever.transfer import Fetch, SourceError, Transfer
from data_stack.io.stand_ins import advice_for, find_stand_in
from data_stack.io.storage_connectors.connector import StorageConnector
from data_stack.io.storage_connectors.writer import ResourceWriter
from data_stack.util.logger import logger

#: How much of the error of a fetcher is shown.
_MAX_ERROR_CHARACTERS = 300


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


def deliver(
    definition: ResourceDefinition,
    source: str,
    fetch: Fetch,
    connector: StorageConnector,
    begin_transfer: Callable[[ResourceDefinition, ResourceWriter], Transfer] = Transfer,
) -> RetrievedResource:
    """Store the bytes of a source if they match the definition.

    Args:
        definition: the resource.
        source: one of its sources.
        fetch: fetches the source.
        connector: the store.
        begin_transfer: makes the transfer, once the store can be written. The caller may note the
            transfer, to watch and end it.

    Raises:
        ChecksumMismatchError: the bytes do not match; nothing was stored.
        SourceError: the source failed; nothing was stored.
        StorageError: the store could not be written.
    """
    identifier = definition.identifier
    try:
        with _open_writer(definition, source, fetch, connector) as writer:
            transfer = begin_transfer(definition, writer)
            _fetch(fetch, source, transfer)
            transfer.check()

            # A digest tells whether the bytes are right. Without one, they must at least not look
            # like a page or an error.
            is_verified = transfer.has_digest or transfer.is_verified
            if not is_verified:
                _check_no_stand_in(transfer)
            # The last bytes are hashed when the writer is closed. The end of the block publishes
            # the resource, unless the check raises.
            writer.close()
            _check_bytes(transfer, writer, source)
    except StorageError:
        raise
    except OSError as error:
        reason = error.strerror or error
        raise StorageError(f"could not store {identifier!r}: {reason}", error.errno) from error

    shown_source = hide_credentials(source)
    if not is_verified:
        doubt = "" if transfer.has_end else ", and the server did not say where they end"
        logger.warning(
            "resource %r has no digest: its bytes from %s are stored unverified%s",
            identifier,
            shown_source,
            doubt,
        )
    size = writer.digest.size
    logger.info("retrieved resource %r from %s, %d bytes", identifier, shown_source, size)
    return RetrievedResource(identifier, shown_source, size, writer.digest.sha256, is_verified)


def _open_writer(
    definition: ResourceDefinition, source: str, fetch: Fetch, connector: StorageConnector
) -> AbstractContextManager[ResourceWriter]:
    """Return a writer of the resource; a resumable one if a later retrieval may resume this one."""
    has_digest = bool(definition.sha256 or definition.md5_sum)
    if not may_be_resumed(fetch, has_digest=has_digest):
        return connector.create(definition.identifier)
    # A retrieval may resume only what another one of the same bytes from the same source has
    # written. The key is in names of files, so the order of the facts must not change.
    facts = (
        source,
        definition.identifier,
        definition.size,
        definition.sha256,
        definition.md5_sum,
    )
    key = hashlib.sha256(repr(facts).encode()).hexdigest()[:32]
    return connector.create_resumable(definition.identifier, key)


def _fetch(fetch: Fetch, source: str, transfer: Transfer) -> None:
    """Call a fetcher, which may be of a plugin and raise anything.

    Raises:
        SourceError: the source failed.
        StorageError: the store could not be written.
    """
    try:
        fetch(source, transfer)
    except (SourceError, StorageError):
        raise
    except Exception as error:  # noqa: BLE001  # fetchers may raise anything
        # Hidden before it is cut: what is left of a secret would not be recognized.
        message = redact(f"{type(error).__name__}: {error}", source)
        raise SourceError(message[:_MAX_ERROR_CHARACTERS]) from None


def _check_no_stand_in(transfer: Transfer) -> None:
    """Check that a source did not send a page, an error answer or a pointer of Git LFS.

    Raises:
        SourceError: the source sent one of them; the message says which, and what to do.
    """
    kind = find_stand_in(transfer.head, transfer.definition.identifier, transfer.size)
    if kind is not None:
        raise SourceError(f"sent {kind}, not the file. {advice_for(kind, transfer.head)}")


def _check_bytes(transfer: Transfer, writer: ResourceWriter, source: str) -> None:
    """Check that the bytes are those of the definition, and those that the source lists.

    Raises:
        ChecksumMismatchError: they are not.
    """
    definition = transfer.definition

    def check(algorithm: str, expected: str, actual: str) -> None:
        if expected != actual:
            raise ChecksumMismatchError(
                definition.identifier, hide_credentials(source), expected, actual, algorithm
            )

    if definition.sha256 is not None:
        check("sha256", definition.sha256, writer.digest.sha256)
    if definition.md5_sum is not None:
        check("md5", definition.md5_sum, transfer.hash_by("md5").hexdigest())
    if definition.size is not None:
        check("size", str(definition.size), str(transfer.size))
    if transfer.listed_digest is not None:
        algorithm, listed_digest = transfer.listed_digest
        check(algorithm, listed_digest, transfer.hash_by(algorithm).hexdigest())
