"""The journal of a preparation, which is stored until the dataset is ready."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from data_stack.exception import DatasetFileCorruptError
from data_stack.factories.manifest import SourceRecord
from data_stack.factories.resource_names import STAGED
from data_stack.factories.resource_record import (
    ResourceRecord,
    check_recorded_names,
    read_resource_record,
)
from data_stack.util.untrusted_text import JsonObject, seal_json

_FORMAT = 3

#: The step that stands for all of ``preprocess()``.
WHOLE = "preprocess()"


@dataclass(frozen=True, slots=True)
class Step:
    """A finished step of a preparation, or a finished shard.

    Attributes:
        name: the name of the step.
        resources: the resources that it made.
        staged: the temporary name of each resource, relative to the dataset; None for a resource
            that has its final name.
    """

    name: str
    resources: tuple[ResourceRecord, ...]
    staged: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Journal:
    """The finished steps of one preparation.

    While a journal is stored, resources of two preparations may be mixed, so the dataset is not
    adopted.

    Attributes:
        fingerprint: digest of dataset and sources (:func:`fingerprint`). A journal with another
            fingerprint is ignored.
        steps: the finished steps, in order.
        codes: digests of the code that took part, starting with the first.
    """

    fingerprint: str
    steps: tuple[Step, ...] = ()
    codes: tuple[str, ...] = ()

    @property
    def attempt(self) -> str:
        """ID of this attempt at the preparation, 64 hex digits; unchanged when it is resumed."""
        text = self.fingerprint
        if self.codes:
            text += self.codes[0]
        return hashlib.sha256(text.encode("ascii")).hexdigest()

    def to_json(self) -> bytes:
        """Return the journal as it is stored."""
        return seal_json(
            {
                "format": _FORMAT,
                "fingerprint": self.fingerprint,
                "steps": [_step_fields(step) for step in self.steps],
                "codes": [{"sha256": code} for code in self.codes],
            }
        )

    @classmethod
    def from_json(cls, data: bytes, dataset: str) -> Journal:
        """Read a stored journal.

        Args:
            data: what :meth:`to_json` returned.
            dataset: the folder of the dataset.

        Raises:
            DatasetFileCorruptError: it is damaged, or of another format.
        """
        fields = JsonObject.unseal(data, "journal")
        fields.known_format(_FORMAT)
        journal = cls(
            fingerprint=fields.hexadecimal("fingerprint", 64),
            steps=tuple(_read_step(step) for step in fields.objects("steps")),
            codes=tuple(_read_code(code) for code in fields.objects("codes")),
        )
        fields.done()
        _check_names(dataset, journal.steps)
        return journal


def fingerprint(name: str, version: str, factory: str, sources: Iterable[SourceRecord]) -> str:
    """Return a digest of the dataset, its class and the bytes of its sources: 64 hex digits."""
    source_facts = sorted((source.identifier, source.size, source.sha256) for source in sources)
    # The order of these facts must stay: stores keep digests for years.
    facts = [_FORMAT, name, version, factory, source_facts]
    text = json.dumps(facts, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _step_fields(step: Step) -> dict[str, object]:
    """Return a step as plain data."""
    resources = []
    for record, staged_name in zip(step.resources, step.staged, strict=True):
        resources.append({**asdict(record), "staged": staged_name})
    return {"name": step.name, "resources": resources}


def _read_step(fields: JsonObject) -> Step:
    name = fields.text("name")
    records = []
    staged_names = []
    for resource in fields.objects("resources"):
        staged_names.append(resource.optional(resource.text, "staged"))
        records.append(read_resource_record(resource))
    fields.done()
    return Step(name, tuple(records), tuple(staged_names))


def _read_code(fields: JsonObject) -> str:
    code = fields.hexadecimal("sha256", 64)
    fields.done()
    return code


def _check_names(dataset: str, steps: Iterable[Step]) -> None:
    """Check that the names of resources and their temporary names are valid, each once."""
    names = list[str]()
    staged_names = list[str]()
    for step in steps:
        names.extend(record.identifier for record in step.resources)
        staged_names.extend(name for name in step.staged if name is not None)
    check_recorded_names(dataset, names)
    check_recorded_names(dataset, staged_names)
    for staged_name in staged_names:
        if not staged_name.startswith(STAGED):
            raise DatasetFileCorruptError(
                "the journal is damaged: a resource has an invalid temporary name"
            )
