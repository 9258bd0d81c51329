"""A resource as it was when it was stored, as manifests and journals record it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from data_stack.exception import DatasetFileCorruptError, MalformedIdentifierError
from data_stack.io.identifiers import check_identifier
from data_stack.util.untrusted_text import JsonObject


@dataclass(frozen=True, slots=True)
class ResourceRecord:
    """A resource as it was when it was stored.

    Attributes:
        identifier: its name, relative to the dataset.
        size: length in bytes.
        sha256: 64 hex digits; None only if a read-only store records no digests. Never None in a
            stored manifest.
    """

    identifier: str
    size: int
    sha256: str | None


def read_resource_record(fields: JsonObject) -> ResourceRecord:
    """Return one record of a stored manifest or journal.

    Raises:
        DatasetFileCorruptError: a field is missing, invalid or unknown.
    """
    record = ResourceRecord(
        identifier=fields.text("identifier"),
        size=fields.size("size"),
        sha256=fields.hexadecimal("sha256", 64),
    )
    fields.done()
    return record


def check_recorded_names(dataset: str, names: Iterable[str]) -> None:
    """Check the names of a stored manifest or journal.

    Raises:
        DatasetFileCorruptError: a name is not an identifier below the dataset, or occurs twice.
    """
    seen_names = set[str]()
    for name in names:
        try:
            check_identifier(f"{dataset}/{name}")
        except MalformedIdentifierError as error:
            raise DatasetFileCorruptError(f"a resource list is damaged: {error}") from error
        if name in seen_names:
            raise DatasetFileCorruptError(f"a resource list is damaged: it names {name!r} twice")
        seen_names.add(name)
