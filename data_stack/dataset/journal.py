"""How far an unfinished preparation has come: a value, rewritten whole after each step."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace

from data_stack.dataset.manifest import ResourceRecord, SourceRecord, check_names, resource_record
from data_stack.dataset.strict_json import JsonObject, sealed_json
from data_stack.exception import DatasetFileCorruptError

FORMAT = 2
#: The step that is done when all of preprocess() is; no other has its name.
WHOLE = "preprocess()"


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
        codes: digests of the code that had a part in it, that which began it first.
    """

    fingerprint: str
    origins: tuple[tuple[str, str | None], ...] = ()
    steps: tuple[Step, ...] = ()
    codes: tuple[str, ...] = ()

    @property
    def attempt(self) -> str:
        """Names what was begun by one code and goes on as long as it is resumed: 64 hex digits."""
        return hashlib.sha256("".join([self.fingerprint, *self.codes[:1]]).encode("ascii")).hexdigest()

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
        codes = [{"sha256": code} for code in self.codes]
        facts = {"format": FORMAT, "fingerprint": self.fingerprint, "origins": origins, "steps": steps, "codes": codes}
        return sealed_json(facts)

    @classmethod
    def from_json(cls, data: bytes, dataset: str) -> Journal:
        """Read a stored journal of ``dataset``.

        Raises:
            DatasetFileCorruptError: it is damaged, or of another format.
        """
        fields = JsonObject.unsealed(data, "journal")
        if fields.size("format") != FORMAT:
            raise DatasetFileCorruptError(f"the journal is of another version of data_stack, for it has not format {FORMAT}")
        fingerprint = fields.hexadecimal("fingerprint", 64)
        origins = []
        for each in fields.objects("origins"):
            origins.append((each.text("identifier"), each.optional_text("origin")))
            each.done()
        steps = []
        for each in fields.objects("steps"):
            steps.append(Step(each.text("name"), tuple(resource_record(record) for record in each.objects("resources"))))
            each.done()
        codes = []
        for each in fields.objects("codes"):
            codes.append(each.hexadecimal("sha256", 64))
            each.done()
        fields.done()
        check_names(dataset, (record.identifier for step in steps for record in step.resources))
        return cls(fingerprint, tuple(origins), tuple(steps), tuple(codes))


def fingerprint(name: str, version: str, factory: str, sources: Iterable[SourceRecord]) -> str:
    """Names one preparation: 64 hex digits that change with the dataset, its class and the bytes of its sources."""
    facts = [FORMAT, name, version, factory, sorted((source.identifier, source.size, source.sha256) for source in sources)]
    return hashlib.sha256(json.dumps(facts, separators=(",", ":")).encode("ascii")).hexdigest()
