"""The manifest of a prepared dataset, which is stored last and makes it ready."""

from __future__ import annotations

import datetime
from dataclasses import asdict, dataclass

from data_stack.exception import DatasetFileCorruptError
from data_stack.factories.resource_record import ResourceRecord as ResourceRecord
from data_stack.factories.resource_record import check_recorded_names, read_resource_record
from data_stack.util.untrusted_text import JsonObject, seal_json

#: The format that is written. Format 1 lacks ``framework`` and ``seconds``.
_FORMAT = 2


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
        name: the name of the dataset.
        version: the version of the dataset.
        factory: the class that prepared it, ``"module:QualifiedName"``.
        distribution: the installed distribution of that class and its version,
            ``"lazy-data-stack-iris 0.2.0"``; None if unknown.
        sources: the sources of the preparation.
        prepared: the resources that ``open`` reads.
        adopted: True if the store was complete without a manifest, and the resources were not
            prepared by data_stack.
        created: time of writing, ISO 8601 in UTC.
        framework: the data_stack that prepared it, ``"lazy-data-stack 0.2.0"``; None if an
            earlier one did.
        seconds: how long the preparation took; None if unknown.
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
        """Return the SHA-256 of the prepared resources by name, sorted by name.

        Returns:
            The digests; None if there are no resources, or one has no digest.
        """
        digests = {}
        for record in sorted(self.prepared, key=lambda record: record.identifier):
            if record.sha256 is None:
                return None
            digests[record.identifier] = record.sha256
        return digests or None

    def to_json(self) -> bytes:
        """Return the manifest as indented ASCII JSON with a digest of itself."""
        return seal_json({"format": _FORMAT, **asdict(self)})

    @classmethod
    def from_json(cls, data: bytes) -> Manifest:
        """Parse and check a stored manifest.

        Raises:
            DatasetFileCorruptError: it is damaged, or of an unknown format.
        """
        fields = JsonObject.unseal(data, "manifest")
        stored_format = fields.known_format(1, _FORMAT)
        framework = None
        seconds = None
        if stored_format >= 2:
            framework = fields.optional(fields.text, "framework")
            seconds = fields.optional(fields.seconds, "seconds")
        manifest = cls(
            name=fields.text("name"),
            version=fields.text("version"),
            factory=fields.text("factory"),
            distribution=fields.optional(fields.text, "distribution"),
            sources=tuple(_read_source_record(record) for record in fields.objects("sources")),
            prepared=tuple(read_resource_record(record) for record in fields.objects("prepared")),
            adopted=fields.flag("adopted"),
            created=fields.text("created"),
            framework=framework,
            seconds=seconds,
        )
        fields.done()

        _check_time(manifest.created)
        check_recorded_names(manifest.name, (source.identifier for source in manifest.sources))
        check_recorded_names(manifest.name, (record.identifier for record in manifest.prepared))
        return manifest


def _read_source_record(fields: JsonObject) -> SourceRecord:
    record = SourceRecord(
        identifier=fields.text("identifier"),
        size=fields.optional(fields.size, "size"),
        sha256=fields.optional(fields.hexadecimal, "sha256", 64),
        md5_sum=fields.optional(fields.hexadecimal, "md5_sum", 32),
        verified=fields.flag("verified"),
        origin=fields.optional(fields.text, "origin"),
    )
    fields.done()
    return record


def _check_time(text: str) -> None:
    try:
        datetime.datetime.fromisoformat(text)
    except ValueError as error:
        raise DatasetFileCorruptError(
            f"manifest is damaged: {text[:60]!r} is not a time"
        ) from error
