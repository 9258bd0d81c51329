"""Asks the sources of resources whether they answer, without retrieving them."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from data_stack.io.parallel import Workers
from data_stack.io.redaction import redact, shorten
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.retriever.retriever import fetcher_of, is_offline
from data_stack.io.retriever.transfer import SourceError, Transfer
from data_stack.io.storage_connectors.writer import ResourceWriter
from data_stack.io.web import Limits

if TYPE_CHECKING:
    from collections.abc import Buffer  # type: ignore[attr-defined]  # typeshed: Python 3.12

_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class SourceAnswers:
    """What the sources of a resource answered.

    Attributes:
        source: the first one that sent its first bytes, without credentials; None if none did.
        size: bytes that it announces, or else those of the definition; None if neither is known.
        refusals: ``(source, what it said)`` for each source before that one.
    """

    source: str | None
    size: int | None
    refusals: tuple[tuple[str, str], ...]


def ask_sources(
    definitions: Sequence[ResourceDefinition], *, offline: bool | None = None, timeout_seconds: float = 10.0
) -> list[SourceAnswers]:
    """Ask the sources of each resource in turn until one sends its first bytes, which are discarded.

    Args:
        definitions: the resources, of different identifiers.
        offline: use no network; None: as ``DATA_STACK_OFFLINE`` says.
        timeout_seconds: longest silence of a source.

    Returns:
        One entry for each definition, in their order.
    """
    answers: dict[str, SourceAnswers] = {}
    offline = is_offline() if offline is None else offline

    def ask(definition: ResourceDefinition) -> None:
        answers[definition.identifier] = _ask(definition, offline, timeout_seconds)

    Workers(definitions, ask, _AT_ONCE).run()
    return [answers[definition.identifier] for definition in definitions]


def _ask(definition: ResourceDefinition, offline: bool, timeout_seconds: float) -> SourceAnswers:
    refusals: list[tuple[str, str]] = []
    for source in map(os.fsdecode, definition.sources):
        writer, limits = ResourceWriter(definition.identifier, io.BytesIO()), Limits(n_retries=1)
        transfer = _FirstBytes(definition, writer, timeout_seconds=timeout_seconds, limits=limits)
        reason = ""
        try:
            fetcher_of(source, offline=offline)[0](source, transfer)
        except SourceError as error:
            reason = redact(error.reason, source)
        except Exception as error:  # noqa: BLE001  # fetchers may raise anything
            reason = redact(f"{type(error).__name__}: {error}"[:300], source)
        if transfer.has_answered or not reason:
            return SourceAnswers(shorten(source), transfer.expected_size, tuple(refusals))
        refusals.append((shorten(source), reason))
    return SourceAnswers(None, definition.size, tuple(refusals))


class _FirstBytes(Transfer):
    """A transfer that ends with the first bytes."""

    has_answered = False

    def write(self, data: Buffer) -> None:
        self.has_answered = True
        raise SourceError("answered")
