"""Finds out which source would deliver a resource, without retrieving it."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from data_stack.io.job_threads import JobThreads
from data_stack.io.offline import is_offline
from data_stack.io.redaction import hide_credentials, redact
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.retriever.schemes import handler_of
from data_stack.io.retriever.transfer import SourceError, Transfer
from data_stack.io.storage_connectors.writer import ResourceWriter
from data_stack.io.web import Limits

_N_THREADS: Final = 4
_LIMITS: Final = Limits(n_retries=1)
#: How much of the error of a fetcher is shown.
_MAX_ERROR_CHARACTERS: Final = 300


@dataclass(frozen=True, slots=True)
class PlannedSource:
    """The source that would deliver a resource.

    Attributes:
        identifier: the name of the resource.
        size: length in bytes that the source announces, or else that of the definition; None if
            neither is known.
        is_stored: whether the store has the resource, so that no source was asked. The caller of
            :func:`ask_sources`, which knows the store, makes such entries.
        source: the source that answered, without credentials; None if none did, or if none was
            asked.
        refusals: ``(source, reason)`` of each source that did not answer before.
    """

    identifier: str
    size: int | None
    is_stored: bool
    source: str | None = None
    refusals: tuple[tuple[str, str], ...] = ()


def ask_sources(
    definitions: Sequence[ResourceDefinition],
    *,
    offline: bool | None = None,
    timeout_seconds: float = 10.0,
) -> list[PlannedSource]:
    """Ask the sources of each resource in turn until one sends its first bytes.

    The bytes are discarded.

    Args:
        definitions: the resources, of different identifiers.
        offline: use no network; None: as ``DATA_STACK_OFFLINE`` says.
        timeout_seconds: longest silence of a source.

    Returns:
        One entry for each definition, in their order.
    """
    if offline is None:
        offline = is_offline()
    answers = dict[str, PlannedSource]()

    def ask(definition: ResourceDefinition) -> None:
        answers[definition.identifier] = _first_to_answer(definition, offline, timeout_seconds)

    JobThreads(definitions, ask, _N_THREADS).run()
    return [answers[definition.identifier] for definition in definitions]


def _first_to_answer(
    definition: ResourceDefinition, offline: bool, timeout_seconds: float
) -> PlannedSource:
    """Ask the sources of a resource in turn, until one sends bytes."""
    identifier = definition.identifier
    refusals = list[tuple[str, str]]()
    for source in map(os.fsdecode, definition.sources):
        writer = ResourceWriter(identifier, io.BytesIO())
        transfer = _FirstBytesTransfer(
            definition, writer, timeout_seconds=timeout_seconds, limits=_LIMITS
        )
        reason = _ask_one(source, transfer, offline)
        if reason is None:
            return PlannedSource(
                identifier,
                transfer.expected_size,
                is_stored=False,
                source=hide_credentials(source),
                refusals=tuple(refusals),
            )
        refusals.append((hide_credentials(source), reason))
    return PlannedSource(
        identifier, definition.size, is_stored=False, source=None, refusals=tuple(refusals)
    )


def _ask_one(source: str, transfer: _FirstBytesTransfer, offline: bool) -> str | None:
    """Return why a source sends no bytes; None if it sends some, or an empty resource."""
    try:
        handler = handler_of(source, offline=offline)
        handler.fetch(source, transfer)
    except Exception as error:  # noqa: BLE001  # fetchers may raise anything
        if transfer.has_answered:
            return None
        reason = str(error)
        if not isinstance(error, SourceError):
            reason = f"{type(error).__name__}: {reason}"
        # Hidden before it is cut: what is left of a secret would not be recognized.
        return redact(reason, source)[:_MAX_ERROR_CHARACTERS]
    return None


class _FirstBytesTransfer(Transfer):
    """A transfer that ends with the first bytes.

    Attributes:
        has_answered: whether the source sent bytes.
    """

    has_answered: bool = False

    def write(self, data: object) -> None:
        self.has_answered = True
        # An error is the only way to make a fetcher stop; Ctrl-C ends it by one as well.
        raise SourceError("answered")
