"""Which source would deliver a resource, asked without retrieving it."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass

from data_stack.io.job_threads import JobThreads
from data_stack.io.offline import is_offline
from data_stack.io.redaction import redact, shorten
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.retriever.schemes import fetcher_of
from data_stack.io.retriever.transfer import SourceError, Transfer
from data_stack.io.storage_connectors.writer import ResourceWriter
from data_stack.io.web.limits import Limits


@dataclass(frozen=True, slots=True)
class PlannedSource:
    """A resource that would be retrieved, or is stored.

    Attributes:
        identifier: its name.
        size: bytes that its source announces, or else those of the definition; None if neither is known.
        is_stored: whether the store has it; its bytes are compared with its digest when it is used.
        source: the first of its sources that sent its first bytes, without credentials; None if it is stored, or if none did.
        refusals: ``(source, reason)`` of each source before that one.
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
    """Ask the sources of each resource in turn until one sends its first bytes, which are discarded.

    Args:
        definitions: the resources, of different identifiers.
        offline: use no network; None: as ``DATA_STACK_OFFLINE`` says.
        timeout_seconds: longest silence of a source.

    Returns:
        One entry for each definition, in their order.
    """
    answers: dict[str, PlannedSource] = {}
    offline = is_offline() if offline is None else offline

    def ask(definition: ResourceDefinition) -> None:
        refusals: list[tuple[str, str]] = []
        for source in map(os.fsdecode, definition.sources):
            writer, limits = (
                ResourceWriter(definition.identifier, io.BytesIO()),
                Limits(n_retries=1),
            )
            transfer = _FirstBytes(
                definition, writer, timeout_seconds=timeout_seconds, limits=limits
            )
            reason = ""
            try:
                fetcher_of(source, offline=offline)[0](source, transfer)
            except Exception as error:  # noqa: BLE001  # fetchers may raise anything
                kind = "" if isinstance(error, SourceError) else f"{type(error).__name__}: "
                reason = redact(f"{kind}{error}"[:300], source)
            if transfer.has_answered or not reason:
                name, size = definition.identifier, transfer.expected_size
                answers[name] = PlannedSource(name, size, False, shorten(source), tuple(refusals))
                return
            refusals.append((shorten(source), reason))
        answers[definition.identifier] = PlannedSource(
            definition.identifier, definition.size, False, None, tuple(refusals)
        )

    JobThreads(definitions, ask, 4).run()
    return [answers[definition.identifier] for definition in definitions]


class _FirstBytes(Transfer):
    """A transfer that ends with the first bytes."""

    has_answered = False

    def write(self, data: object) -> None:
        self.has_answered = True
        raise SourceError("answered")
