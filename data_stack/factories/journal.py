"""The journal of an unfinished preparation, rewritten after each step."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace

from data_stack.exception import DatasetFileCorruptError
from data_stack.factories.manifest import ResourceRecord, SourceRecord, check_names, resource_record
from data_stack.factories.resource_names import STAGED
from data_stack.util.untrusted_text import JsonObject, seal_json

FORMAT = 3
#: The step that stands for all of preprocess().
WHOLE = "preprocess()"


@dataclass(frozen=True, slots=True)
class Step:
    """A finished step of a preparation, or a shard.

    Attributes:
        name: of the step.
        resources: that it made.
        staged: the temporary name of each resource, relative to the dataset; None if it has its final name.
    """

    name: str
    resources: tuple[ResourceRecord, ...]
    staged: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Journal:
    """The finished steps of one preparation.

    While it is stored, resources of two preparations may be mixed, so the dataset is not adopted.

    Attributes:
        fingerprint: digest of dataset and sources; a journal with another one is ignored.
        steps: the finished steps, in order.
        codes: digests of the code that took part, starting with the first.
    """

    fingerprint: str
    steps: tuple[Step, ...] = ()
    codes: tuple[str, ...] = ()

    @property
    def attempt(self) -> str:
        """Names a preparation and its first code: 64 hex digits that stay when it is resumed."""
        return hashlib.sha256("".join([self.fingerprint, *self.codes[:1]]).encode("ascii")).hexdigest()

    def step(self, name: str) -> Step | None:
        """The step with this name, if it is finished."""
        return next((step for step in self.steps if step.name == name), None)

    def with_step(self, done: Step) -> Journal:
        """The journal with one more step; replaces an earlier one with the same name."""
        return replace(self, steps=(*(step for step in self.steps if step.name != done.name), done))

    def to_json(self) -> bytes:
        """The journal as it is stored."""
        steps = []
        for step in self.steps:
            pairs = zip(step.resources, step.staged, strict=True)
            steps.append({"name": step.name, "resources": [{**asdict(record), "staged": staged} for record, staged in pairs]})
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
            raise DatasetFileCorruptError(f"the journal has another format than {FORMAT}: another version of data_stack wrote it")
        fingerprint = fields.hexadecimal("fingerprint", 64)
        steps = []
        for each in fields.objects("steps"):
            resources = each.objects("resources")
            staged = tuple(resource.optional_text("staged") for resource in resources)
            steps.append(Step(each.text("name"), tuple(map(resource_record, resources)), staged))
            each.done()
        listed = fields.objects("codes")
        codes = [each.hexadecimal("sha256", 64) for each in listed]
        for each in (*listed, fields):
            each.done()
        check_names(dataset, (record.identifier for step in steps for record in step.resources))
        waiting = [staged for step in steps for staged in step.staged if staged is not None]
        check_names(dataset, waiting)
        if not all(staged.startswith(STAGED) for staged in waiting):
            raise DatasetFileCorruptError("the journal is damaged: a resource has an invalid temporary name")
        return cls(fingerprint, tuple(steps), tuple(codes))


def fingerprint(name: str, version: str, factory: str, sources: Iterable[SourceRecord]) -> str:
    """Digest of the dataset, its class and the bytes of its sources: 64 hex digits."""
    facts = [FORMAT, name, version, factory, sorted((source.identifier, source.size, source.sha256) for source in sources)]
    return hashlib.sha256(json.dumps(facts, separators=(",", ":")).encode("ascii")).hexdigest()
