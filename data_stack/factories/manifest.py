"""What data_stack stores with a prepared dataset: its manifest, which makes it ready, the journal until then, reserved names."""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from data_stack.exception import ConfigError, DatasetFileCorruptError, MalformedIdentifierError
from data_stack.io.identifiers import check_identifier
from data_stack.util.untrusted_text import JsonObject, seal_json

MANIFEST, JOURNAL = "manifest.json", "journal.json"
#: Digests of samples that were read for a lock file.
SAMPLE_DIGESTS = "digests@samples.json"
#: Prefix of temporary names, reserved.
STAGED = "preparing@"


class ResourceNames:
    """The names used below a dataset, including those of data_stack itself.

    Args:
        dataset: its folder.
        names: used from the start.

    Raises:
        MalformedIdentifierError: a name is outside of the grammar of identifiers.
        ConfigError: a name is used, differs from a used one in case only, is the folder of one, or is reserved.
    """

    def __init__(self, dataset: str, names: Iterable[str] = ()) -> None:
        self._dataset = dataset
        self._files: dict[str, str] = {}
        self._folders: dict[str, str] = {}
        for name in (MANIFEST, JOURNAL, SAMPLE_DIGESTS, *names):
            self.take(name)

    def take(self, name: str) -> None:
        """Reserve a name."""
        check_identifier(f"{self._dataset}/{check_identifier(name)}")
        # Windows and macOS fold case.
        folded = name.casefold()
        if folded.startswith(STAGED):
            raise ConfigError(
                f"dataset {self._dataset!r} cannot have the resource {name!r}: the prefix {STAGED!r} is reserved"
            )
        folders = _folders_of(folded)
        other = (
            self._files.get(folded)
            or self._folders.get(folded)
            or next(filter(None, map(self._files.get, folders)), None)
        )
        if other is not None:
            raise ConfigError(
                f"dataset {self._dataset!r} cannot have the resource {name!r}: {other!r} needs its file or folder"
            )
        self._files[folded] = name
        for folder in folders:
            self._folders.setdefault(folder, name)

    def give_back(self, name: str) -> None:
        """Free a reserved name."""
        del self._files[name.casefold()]
        self._folders = {
            folder: user for user in self._files.values() for folder in _folders_of(user.casefold())
        }


def _folders_of(name: str) -> list[str]:
    segments = name.split("/")
    return ["/".join(segments[:n]) for n in range(1, len(segments))]


_FORMAT = 2


@dataclass(frozen=True, slots=True)
class ResourceRecord:
    """A resource as it was when it was stored.

    Attributes:
        identifier: its name, relative to the dataset.
        size: length in bytes.
        sha256: 64 hex digits; None only if a read-only store records no digests. Never None in a stored manifest.
    """

    identifier: str
    size: int
    sha256: str | None


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """A source as it was when the dataset was prepared from it.

    Attributes:
        identifier: its name, relative to the dataset.
        size: length in bytes; None if it was missing when the dataset was adopted.
        sha256: 64 hex digits, computed or (adopted) of the definition; None if neither is known.
        md5_sum: the MD5 of the definition, if it has one.
        verified: whether the bytes had the digest of the definition.
        origin: where they came from, without credentials; None if they were in the store already.
    """

    identifier: str
    size: int | None
    sha256: str | None
    md5_sum: str | None
    verified: bool
    origin: str | None


@dataclass(frozen=True, slots=True)
class Manifest:
    """A prepared dataset, resource by resource.

    Attributes:
        name: of the dataset.
        version: of the dataset.
        factory: the class that prepared it, ``"module:QualifiedName"``.
        distribution: the installed distribution of that class and its version, ``"lazy-data-stack-iris 0.2.0"``; None if unknown.
        sources: of the preparation.
        prepared: the resources that ``open`` reads.
        adopted: True if the store was complete without a manifest, and the resources were not prepared by data_stack.
        created: time of writing, ISO 8601 in UTC.
        framework: the data_stack that prepared it, ``"lazy-data-stack 0.2.0"``; None if an earlier one did.
        seconds: the preparation took; None if unknown.
    """

    name: str
    version: str
    factory: str
    distribution: str | None
    sources: tuple[SourceRecord, ...]
    prepared: tuple[ResourceRecord, ...]
    adopted: bool
    created: str
    framework: str | None = None
    seconds: float | None = None

    @property
    def size(self) -> int:
        """Bytes of all prepared resources."""
        return sum(record.size for record in self.prepared)

    def digests(self) -> dict[str, str] | None:
        """The SHA-256 of the prepared resources by name, sorted; None if there are none or one has no digest."""
        found = {
            each.identifier: each.sha256 or ""
            for each in sorted(self.prepared, key=lambda each: each.identifier)
        }
        return found if found and all(found.values()) else None

    def to_json(self) -> bytes:
        """The manifest as indented ASCII JSON with a digest."""
        return seal_json({"format": _FORMAT, **asdict(self)})

    @classmethod
    def from_json(cls, data: bytes) -> Manifest:
        """Parse and check a stored manifest.

        Raises:
            DatasetFileCorruptError: it is damaged, or of an unknown format.
        """
        fields = JsonObject.unseal(data, "manifest")
        number = fields.known_format(1, _FORMAT)
        sources, prepared = (
            map(_source, fields.objects("sources")),
            map(_resource, fields.objects("prepared")),
        )
        manifest = cls(
            *(
                fields.text("name"),
                fields.text("version"),
                fields.text("factory"),
                fields.optional(fields.text, "distribution"),
            ),
            *(tuple(sources), tuple(prepared), fields.flag("adopted"), fields.text("created")),
            framework=fields.optional(fields.text, "framework") if number >= _FORMAT else None,
            seconds=fields.optional(fields.seconds, "seconds") if number >= _FORMAT else None,
        )
        fields.done()
        try:
            datetime.datetime.fromisoformat(manifest.created)
        except ValueError as error:
            raise DatasetFileCorruptError(
                f"manifest is damaged: {manifest.created[:60]!r} is not a time"
            ) from error
        for records in (manifest.sources, manifest.prepared):
            _check_names(manifest.name, (record.identifier for record in records))
        return manifest


def _resource(fields: JsonObject) -> ResourceRecord:
    """Read one record of a stored manifest or journal."""
    record = ResourceRecord(
        fields.text("identifier"), fields.size("size"), fields.hexadecimal("sha256", 64)
    )
    fields.done()
    return record


def _check_names(dataset: str, names: Iterable[str]) -> None:
    """Raise DatasetFileCorruptError if a name is not an identifier below the dataset, or occurs twice."""
    seen = set()
    for name in names:
        try:
            check_identifier(f"{dataset}/{name}")
        except MalformedIdentifierError as error:
            raise DatasetFileCorruptError(f"a resource list is damaged: {error}") from error
        if name in seen:
            raise DatasetFileCorruptError(f"a resource list is damaged: it names {name!r} twice")
        seen.add(name)


def _source(fields: JsonObject) -> SourceRecord:
    digests = (
        fields.optional(fields.hexadecimal, "sha256", 64),
        fields.optional(fields.hexadecimal, "md5_sum", 32),
    )
    facts = (
        fields.text("identifier"),
        fields.optional(fields.size, "size"),
        *digests,
        fields.flag("verified"),
    )
    record = SourceRecord(*facts, fields.optional(fields.text, "origin"))
    fields.done()
    return record


_JOURNAL_FORMAT = 3
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
        return hashlib.sha256(
            "".join([self.fingerprint, *self.codes[:1]]).encode("ascii")
        ).hexdigest()

    def to_json(self) -> bytes:
        """The journal as it is stored."""
        steps = []
        for step in self.steps:
            pairs = zip(step.resources, step.staged, strict=True)
            steps.append(
                {
                    "name": step.name,
                    "resources": [{**asdict(record), "staged": staged} for record, staged in pairs],
                }
            )
        codes = [{"sha256": code} for code in self.codes]
        return seal_json(
            {
                "format": _JOURNAL_FORMAT,
                "fingerprint": self.fingerprint,
                "steps": steps,
                "codes": codes,
            }
        )

    @classmethod
    def from_json(cls, data: bytes, dataset: str) -> Journal:
        """Read a stored journal of ``dataset``.

        Raises:
            DatasetFileCorruptError: it is damaged, or of another format.
        """
        fields = JsonObject.unseal(data, "journal")
        fields.known_format(_JOURNAL_FORMAT)
        fingerprint = fields.hexadecimal("fingerprint", 64)
        steps = []
        for each in fields.objects("steps"):
            resources = each.objects("resources")
            staged = tuple(resource.optional(resource.text, "staged") for resource in resources)
            steps.append(Step(each.text("name"), tuple(map(_resource, resources)), staged))
            each.done()
        listed = fields.objects("codes")
        codes = [each.hexadecimal("sha256", 64) for each in listed]
        for each in (*listed, fields):
            each.done()
        _check_names(dataset, (record.identifier for step in steps for record in step.resources))
        waiting = [staged for step in steps for staged in step.staged if staged is not None]
        _check_names(dataset, waiting)
        if not all(staged.startswith(STAGED) for staged in waiting):
            raise DatasetFileCorruptError(
                "the journal is damaged: a resource has an invalid temporary name"
            )
        return cls(fingerprint, tuple(steps), tuple(codes))


def fingerprint(name: str, version: str, factory: str, sources: Iterable[SourceRecord]) -> str:
    """Digest of the dataset, its class and the bytes of its sources: 64 hex digits."""
    known = sorted((source.identifier, source.size, source.sha256) for source in sources)
    facts = [_JOURNAL_FORMAT, name, version, factory, known]
    return hashlib.sha256(json.dumps(facts, separators=(",", ":")).encode("ascii")).hexdigest()
