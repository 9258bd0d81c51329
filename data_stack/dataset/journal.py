"""How far an unfinished preparation has come: a value, rewritten whole after each step."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace

from data_stack.dataset.manifest import ResourceRecord, SourceRecord, check_names, resource_record
from data_stack.dataset.resource_names import STAGED
from data_stack.dataset.strict_json import JsonObject, seal_json
from data_stack.exception import DatasetFileCorruptError

FORMAT = 3
#: The step that is done when all of preprocess() is; no other has its name.
WHOLE = "preprocess()"


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a preparation that is done, or a shard.

    Attributes:
        name: of the step.
        resources: what it made.
        staged: the name under which each of these waits, relative to the dataset; None where it has its own already.
    """

    name: str
    resources: tuple[ResourceRecord, ...]
    staged: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Journal:
    """The steps of one preparation that are done.

    While it is stored, the dataset's resources may be of two preparations mixed, and are not taken for a complete dataset.

    Attributes:
        fingerprint: names what is prepared from what; a journal of another preparation says nothing about this one.
        steps: what is done, in order.
        codes: digests of the code that had a part in it, that which began it first.
    """

    fingerprint: str
    steps: tuple[Step, ...] = ()
    codes: tuple[str, ...] = ()

    @property
    def attempt(self) -> str:
        """Names what was begun by one code and goes on as long as it is resumed: 64 hex digits."""
        return hashlib.sha256("".join([self.fingerprint, *self.codes[:1]]).encode("ascii")).hexdigest()

    def step(self, name: str) -> Step | None:
        """The step of that name, if it is done."""
        return next((step for step in self.steps if step.name == name), None)

    def with_step(self, done: Step) -> Journal:
        """The journal after one more step, in place of an earlier one of that name."""
        return replace(self, steps=(*(step for step in self.steps if step.name != done.name), done))

    def to_json(self) -> bytes:
        """The journal as it is stored."""
        steps = [
            {
                "name": step.name,
                "resources": [
                    {**asdict(record), "staged": staged} for record, staged in zip(step.resources, step.staged, strict=True)
                ],
            }
            for step in self.steps
        ]
        codes = [{"sha256": code} for code in self.codes]
        return seal_json({"format": FORMAT, "fingerprint": self.fingerprint, "steps": steps, "codes": codes})

    @classmethod
    def from_json(cls, data: bytes, dataset: str) -> Journal:
        """Read a stored journal of ``dataset``.

        Raises:
            DatasetFileCorruptError: it is damaged, or of another format.
        """
        fields = JsonObject.unseal(data, "journal")
        if fields.size("format") != FORMAT:
            raise DatasetFileCorruptError(f"the journal is of another version of data_stack, for it has not format {FORMAT}")
        fingerprint = fields.hexadecimal("fingerprint", 64)
        steps = []
        for each in fields.objects("steps"):
            resources = each.objects("resources")
            staged = tuple(resource.optional_text("staged") for resource in resources)
            steps.append(Step(each.text("name"), tuple(map(resource_record, resources)), staged))
            each.done()
        codes = []
        for each in fields.objects("codes"):
            codes.append(each.hexadecimal("sha256", 64))
            each.done()
        fields.done()
        check_names(dataset, (record.identifier for step in steps for record in step.resources))
        waiting = [staged for step in steps for staged in step.staged if staged is not None]
        check_names(dataset, waiting)
        if not all(staged.startswith(STAGED) for staged in waiting):
            raise DatasetFileCorruptError("the journal is damaged: something waits under a name that is not for that")
        return cls(fingerprint, tuple(steps), tuple(codes))


def fingerprint(name: str, version: str, factory: str, sources: Iterable[SourceRecord]) -> str:
    """Names one preparation: 64 hex digits that change with the dataset, its class and the bytes of its sources."""
    facts = [FORMAT, name, version, factory, sorted((source.identifier, source.size, source.sha256) for source in sources)]
    return hashlib.sha256(json.dumps(facts, separators=(",", ":")).encode("ascii")).hexdigest()
