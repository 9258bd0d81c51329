"""How far an unfinished preparation has come: a value, rewritten whole after each step."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace

from data_stack.dataset.manifest import ResourceRecord, SourceRecord, check_names, resource_record
from data_stack.dataset.strict_json import JsonObject, sealed_json
from data_stack.exception import DatasetFileCorruptError

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a preparation that is done, with the resources it published."""

    name: str
    resources: tuple[ResourceRecord, ...]


@dataclass(frozen=True, slots=True)
class Journal:
    """The steps of one preparation that are done.

    While it is stored, the dataset's resources may be of two preparations mixed, and are not taken for a complete dataset.

    Attributes:
        fingerprint: names what is prepared from what; a journal of another preparation says nothing about this one.
        origins: where each source came from, as (identifier, place or None).
        steps: what is done, in order.
    """

    fingerprint: str
    origins: tuple[tuple[str, str | None], ...] = ()
    steps: tuple[Step, ...] = ()

    def step(self, name: str) -> Step | None:
        """The step of that name, if it is done."""
        return next((step for step in self.steps if step.name == name), None)

    def origin(self, identifier: str) -> str | None:
        """Where a source came from, if that was seen."""
        return dict(self.origins).get(identifier)

    def with_step(self, name: str, resources: Iterable[ResourceRecord]) -> Journal:
        """The journal after one more step, in place of an earlier one of that name."""
        return replace(self, steps=(*(step for step in self.steps if step.name != name), Step(name, tuple(resources))))

    def to_json(self) -> bytes:
        """The journal as it is stored."""
        origins = [{"identifier": identifier, "origin": origin} for identifier, origin in self.origins]
        steps = [asdict(step) for step in self.steps]
        return sealed_json({"format": FORMAT, "fingerprint": self.fingerprint, "origins": origins, "steps": steps})

    @classmethod
    def from_json(cls, data: bytes, dataset: str) -> Journal:
        """Read a stored journal of ``dataset``.

        Raises:
            DatasetFileCorruptError: it is damaged, or of another format.
        """
        fields = JsonObject.unsealed(data, "journal")
        if fields.size("format") != FORMAT:
            raise DatasetFileCorruptError("journal is of another version of data_stack")
        fingerprint = fields.hexadecimal("fingerprint", 64)
        origins = []
        for each in fields.objects("origins"):
            origins.append((each.text("identifier"), each.optional_text("origin")))
            each.done()
        steps = []
        for each in fields.objects("steps"):
            steps.append(Step(each.text("name"), tuple(resource_record(record) for record in each.objects("resources"))))
            each.done()
        fields.done()
        check_names(dataset, (record.identifier for step in steps for record in step.resources))
        return cls(fingerprint, tuple(origins), tuple(steps))


def fingerprint(name: str, version: str, factory: str, sources: Iterable[SourceRecord]) -> str:
    """Names one preparation: 64 hex digits that change with the dataset, its class and the bytes of its sources."""
    facts = [FORMAT, name, version, factory, sorted((source.identifier, source.size, source.sha256) for source in sources)]
    return hashlib.sha256(json.dumps(facts, separators=(",", ":")).encode("ascii")).hexdigest()
