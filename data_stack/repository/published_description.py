"""The description of a published dataset, ``data_stack.json``, which anyone may have written."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from data_stack.exception import (
    ChecksumMismatchError,
    ConfigError,
    DatasetFileCorruptError,
    MalformedIdentifierError,
)
from data_stack.factories.manifest import Manifest
from data_stack.io.identifiers import check_identifier
from data_stack.io.integrity import BLOCK_BYTES
from data_stack.util.untrusted_text import MAX_BYTES, JsonObject

#: The name of the file.
DESCRIPTION: Final = "data_stack.json"

#: The format of the file.
FORMAT: Final = 1

#: The first bytes of the SHA-256 of a block are kept: enough against attackers, and half the room.
DIGEST_BYTES: Final = 16

_PIN: Final = re.compile("sha256=[0-9a-fA-F]{64}")


@dataclass(frozen=True)
class PublishedDescription:
    """The contents of ``data_stack.json``.

    Attributes:
        manifest: the manifest of the prepared resources.
        license: the license on the card; None if the card names none.
        blocks: for each resource the digests of its blocks, 16 bytes each.
    """

    manifest: Manifest
    license: str | None
    blocks: Mapping[str, bytes]

    @property
    def name(self) -> str:
        """The name of the dataset, with its version."""
        return f"{self.manifest.name}@{self.manifest.version}"

    @classmethod
    def parse(cls, data: bytes, place: str) -> PublishedDescription:
        """Parse and check a description.

        Args:
            data: the file.
            place: where the description is, for errors.

        Raises:
            DatasetFileCorruptError: it is damaged, of another format or too large.
        """
        what = f"{DESCRIPTION} of {place}"
        if len(data) > MAX_BYTES:
            raise DatasetFileCorruptError(f"{what} has more than {MAX_BYTES:,} bytes")
        fields = JsonObject.unseal(data, what)
        fields.known_format(FORMAT)
        manifest = _parse_manifest(fields.text("manifest"), what)
        license_name = fields.optional(fields.text, "license")
        distribution = fields.optional(fields.text, "distribution")
        digests = JsonObject(fields.value("blocks"), what)
        blocks = {}
        for record in manifest.prepared:
            blocks[record.identifier] = _parse_digests(
                digests, record.identifier, record.size, what
            )
        digests.done()
        fields.done()
        if distribution != manifest.distribution:
            raise DatasetFileCorruptError(f"{what} names two distributions")
        return cls(manifest, license_name, blocks)


def _parse_manifest(text: str, what: str) -> Manifest:
    """Return the manifest that a description contains as text.

    Raises:
        DatasetFileCorruptError: the manifest is damaged, or no dataset can have its name.
    """
    if not text.isascii():
        raise DatasetFileCorruptError(f"{what} is damaged: its manifest is not ASCII")
    manifest = Manifest.from_json(text.encode("ascii"))
    try:
        check_identifier(manifest.name)
    except MalformedIdentifierError as error:
        raise DatasetFileCorruptError(f"{what} is damaged: {error}") from error
    return manifest


def _parse_digests(digests: JsonObject, identifier: str, size: int, what: str) -> bytes:
    """Return the digests of the blocks of a resource.

    Args:
        digests: the digests of all resources, in base 64.
        identifier: the identifier of the resource.
        size: the size of the resource, in bytes.
        what: the name of the description in errors.

    Raises:
        DatasetFileCorruptError: the digests are not base 64, or not one for each block.
    """
    problem = f"{what} lacks a digest for some blocks of {identifier!r}"
    try:
        digests_of_blocks = base64.b64decode(digests.text(identifier), validate=True)
    except ValueError as error:
        raise DatasetFileCorruptError(problem) from error
    if len(digests_of_blocks) != count_blocks(size) * DIGEST_BYTES:
        raise DatasetFileCorruptError(problem)
    return digests_of_blocks


def count_blocks(size: int) -> int:
    """Return the number of blocks of a resource of ``size`` bytes; the last may be shorter."""
    return (size + BLOCK_BYTES - 1) // BLOCK_BYTES


@dataclass(frozen=True, slots=True)
class Pin:
    """The SHA-256 that a description must have, as a URL names it: ``…/digits#sha256=…``.

    Attributes:
        sha256: 64 hexadecimal digits in lower case.
    """

    sha256: str

    @classmethod
    def parse(cls, fragment: str) -> Pin | None:
        """Parse the fragment of a URL, with or without its ``#``; None if it is empty.

        Raises:
            ConfigError: it is not a pin.
        """
        text = fragment.removeprefix("#")
        if not text:
            return None
        if not _PIN.fullmatch(text):
            raise ConfigError(
                f"a published dataset is pinned by #sha256= and 64 hexadecimal digits, "
                f"not by {text!r:.80}"
            )
        return cls(text.partition("=")[2].lower())

    def check(self, data: bytes, place: str) -> None:
        """Check that a description is the pinned one.

        Args:
            data: the file.
            place: where the description is, for the error.

        Raises:
            ChecksumMismatchError: it is another one.
        """
        sha256 = hashlib.sha256(data).hexdigest()
        if sha256 != self.sha256:
            raise ChecksumMismatchError(DESCRIPTION, place, self.sha256, sha256, "sha256")

    def __str__(self) -> str:
        return f"#sha256={self.sha256}"
