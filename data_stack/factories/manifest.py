"""The manifest of a prepared dataset; it is written last and makes the dataset ready."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from data_stack.exception import DatasetFileCorruptError, MalformedIdentifierError
from data_stack.io.identifiers import check_identifier
from data_stack.util.untrusted_text import JsonObject, seal_json

__all__ = ["Manifest", "ResourceRecord", "SourceRecord"]

FORMAT = 2
_FORMATS = (1, FORMAT)  # format 1 lacks framework and seconds


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
        distribution: the installed distribution of that class and its version, ``"datastack-digits 1.0.0"``; None if unknown.
        sources: of the preparation.
        prepared: the resources that ``open`` reads.
        adopted: True if the store was complete without a manifest, and the resources were not prepared by data_stack.
        created: time of writing, ISO 8601 in UTC.
        framework: the data_stack that prepared it, ``"datastack 0.1.0"``; None if an earlier one did.
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
        found = {each.identifier: each.sha256 or "" for each in sorted(self.prepared, key=lambda each: each.identifier)}
        return found if found and all(found.values()) else None

    def to_json(self) -> bytes:
        """The manifest as indented ASCII JSON with a digest."""
        return seal_json({"format": FORMAT, **asdict(self)})

    @classmethod
    def from_json(cls, data: bytes) -> Manifest:
        """Parse and check a stored manifest.

        Raises:
            DatasetFileCorruptError: it is damaged, or of an unknown format.
        """
        fields = JsonObject.unseal(data, "manifest")
        if (number := fields.size("format")) not in _FORMATS:
            raise DatasetFileCorruptError(
                f"manifest has format {number}, but this version of data_stack reads formats up to {FORMAT}; update data_stack"
            )
        manifest = cls(
            name=fields.text("name"),
            version=fields.text("version"),
            factory=fields.text("factory"),
            distribution=fields.optional_text("distribution"),
            sources=tuple(_source(each) for each in fields.objects("sources")),
            prepared=tuple(resource_record(each) for each in fields.objects("prepared")),
            adopted=fields.flag("adopted"),
            created=fields.text("created"),
            framework=fields.optional_text("framework") if number >= FORMAT else None,
            seconds=fields.optional_seconds("seconds") if number >= FORMAT else None,
        )
        fields.done()
        try:
            datetime.datetime.fromisoformat(manifest.created)
        except ValueError as error:
            raise DatasetFileCorruptError(f"manifest is damaged: {manifest.created[:60]!r} is not a time") from error
        check_names(manifest.name, (record.identifier for record in manifest.sources))
        check_names(manifest.name, (record.identifier for record in manifest.prepared))
        return manifest


def resource_record(fields: JsonObject) -> ResourceRecord:
    """Read one record of a stored manifest or journal."""
    record = ResourceRecord(fields.text("identifier"), fields.size("size"), fields.hexadecimal("sha256", 64))
    fields.done()
    return record


def check_names(dataset: str, names: Iterable[str]) -> None:
    """Raise DatasetFileCorruptError if a name is not an identifier below the dataset, or occurs twice."""
    seen = set()
    for name in names:
        try:
            check_identifier(name)
            check_identifier(f"{dataset}/{name}")
        except MalformedIdentifierError as error:
            raise DatasetFileCorruptError(f"a resource list is damaged: {error}") from error
        if name in seen:
            raise DatasetFileCorruptError(f"a resource list is damaged: it names {name!r} twice")
        seen.add(name)


def _source(fields: JsonObject) -> SourceRecord:
    sha256, md5_sum = fields.optional_hexadecimal("sha256", 64), fields.optional_hexadecimal("md5_sum", 32)
    name, size, origin = fields.text("identifier"), fields.optional_size("size"), fields.optional_text("origin")
    record = SourceRecord(name, size, sha256, md5_sum, fields.flag("verified"), origin)
    fields.done()
    return record
