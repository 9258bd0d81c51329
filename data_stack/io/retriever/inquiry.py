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
from data_stack.io.retriever.retriever import find_fetcher, is_offline
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
        source: the first source that answered, without credentials; None if no source did.
        size: the bytes that it announced, or else those of the definition; None if neither is known.
        refusals: ``(source, reason)`` of each source before that one.
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
    if offline is None:
        offline = is_offline()
    answers: dict[str, SourceAnswers] = {}
    transfers: dict[str, _FirstBytes] = {}

    def ask(job: ResourceDefinition) -> None:
        refusals: list[tuple[str, str]] = []
        for source in map(os.fsdecode, job.sources):
            workers.check()
            transfer = transfers[job.identifier] = _FirstBytes(
                job, ResourceWriter(job.identifier, io.BytesIO()), timeout_seconds=timeout_seconds, limits=Limits(n_retries=1)
            )
            reason = ""
            try:
                find_fetcher(source, offline=offline)[0](source, transfer)
            except SourceError as error:
                reason = error.reason
            except Exception as error:  # noqa: BLE001  # fetchers may raise anything
                reason = f"{type(error).__name__}: {error}"[:300]
            if transfer.has_answered or not reason:
                answers[job.identifier] = SourceAnswers(shorten(source), transfer.expected_size, tuple(refusals))
                return
            refusals.append((shorten(source), redact(reason, source)))
        answers[job.identifier] = SourceAnswers(None, job.size, tuple(refusals))

    def end() -> None:
        for transfer in list(transfers.values()):
            transfer.end("interrupted")

    workers = Workers(definitions, ask, min(_AT_ONCE, len(definitions)))
    workers.run(lambda: None, end, patience_seconds=5.0)
    return [answers[definition.identifier] for definition in definitions]


class _FirstBytes(Transfer):
    """A transfer that ends with the first bytes."""

    has_answered = False

    def write(self, data: Buffer) -> None:
        self.has_answered = True
        raise SourceError("answered")
