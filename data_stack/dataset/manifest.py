"""What a prepared dataset consists of: a value, written last, whose presence and truth make the dataset ready."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from data_stack.dataset.strict_json import JsonObject, seal_json
from data_stack.exception import DatasetFileCorruptError, MalformedIdentifierError
from data_stack.io.identifiers import check_identifier

__all__ = ["Manifest", "ResourceRecord", "SourceRecord"]

FORMAT = 1


@dataclass(frozen=True, slots=True)
class ResourceRecord:
    """A resource as it was when it was stored.

    Attributes:
        identifier: its name, relative to the dataset.
        size: length in bytes.
        sha256: 64 hex digits; None only where a store that cannot be written keeps no digests. Never None in a manifest.
    """

    identifier: str
    size: int
    sha256: str | None


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """A source as it was when the dataset was prepared from it.

    Attributes:
        identifier: its name, relative to the dataset.
        size: length in bytes; None if it was no longer there when the dataset was adopted.
        sha256: 64 hex digits, found or (adopted) promised by the definition; None if neither is known.
        md5_sum: the MD5 that the definition promised, if it did.
        verified: whether the bytes that were used had the digest that the definition promised.
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
        sources: what it was prepared from.
        prepared: what is opened.
        adopted: True if the store was complete but had no manifest: what was found is listed, its making was not seen.
        created: when this was written, ISO 8601 in UTC.
    """

    name: str
    version: str
    factory: str
    distribution: str | None
    sources: tuple[SourceRecord, ...]
    prepared: tuple[ResourceRecord, ...]
    adopted: bool
    created: str

    @property
    def unverified(self) -> tuple[str, ...]:
        """The sources whose bytes were held against no digest."""
        return tuple(source.identifier for source in self.sources if not source.verified)

    @property
    def size(self) -> int:
        """Bytes of all prepared resources."""
        return sum(record.size for record in self.prepared)

    def to_json(self) -> bytes:
        """The manifest as it is stored: indented ASCII JSON that states its own digest."""
        return seal_json({"format": FORMAT, **asdict(self)})

    @classmethod
    def from_json(cls, data: bytes) -> Manifest:
        """Read a stored manifest. Nothing in it is believed before it was checked.

        Raises:
            DatasetFileCorruptError: it is damaged, or of a format that this version does not know.
        """
        fields = JsonObject.unseal(data, "manifest")
        if (number := fields.size("format")) != FORMAT:
            raise DatasetFileCorruptError(f"manifest has format {number}, but this version of data_stack reads format {FORMAT}")
        manifest = cls(
            name=fields.text("name"),
            version=fields.text("version"),
            factory=fields.text("factory"),
            distribution=fields.optional_text("distribution"),
            sources=tuple(_source(each) for each in fields.objects("sources")),
            prepared=tuple(resource_record(each) for each in fields.objects("prepared")),
            adopted=fields.flag("adopted"),
            created=fields.text("created"),
        )
        fields.done()
        manifest._check()
        return manifest

    def _check(self) -> None:
        try:
            datetime.datetime.fromisoformat(self.created)
        except ValueError as error:
            raise DatasetFileCorruptError(f"manifest is damaged: {self.created[:60]!r} is no time") from error
        for records in (self.sources, self.prepared):
            check_names(self.name, (record.identifier for record in records))


def resource_record(fields: JsonObject) -> ResourceRecord:
    """Read one record of a stored manifest or journal."""
    record = ResourceRecord(fields.text("identifier"), fields.size("size"), fields.hexadecimal("sha256", 64))
    fields.done()
    return record


def check_names(dataset: str, names: Iterable[str]) -> None:
    """Refuse stored names that are no identifiers below the dataset, or occur twice."""
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
    record = SourceRecord(
        identifier=fields.text("identifier"),
        size=fields.optional_size("size"),
        sha256=fields.optional_hexadecimal("sha256", 64),
        md5_sum=fields.optional_hexadecimal("md5_sum", 32),
        verified=fields.flag("verified"),
        origin=fields.optional_text("origin"),
    )
    fields.done()
    return record
