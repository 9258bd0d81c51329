"""A resource to retrieve: its name, sources and digest."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from data_stack.exception import ConfigError

_SHA256: Final = re.compile("[0-9a-fA-F]{64}")


@dataclass(frozen=True)
class ResourceDefinition:
    """One resource: its identifier in the store, its sources, and its digest.

    Without ``sha256`` and ``md5_sum``, any bytes are stored with a warning, and the dataset's
    manifest marks them as unverified.

    Args:
        identifier: its name in the store (grammar: :mod:`data_stack.io.identifiers`).
        source: the first source: ``https://…``, ``http://…``, ``file:///…``, a path, or
            ``package:sklearn/datasets/data/iris.csv`` for a file inside an installed Python
            package.
        md5_sum: MD5 of the bytes, 32 hex digits in either case; prefer ``sha256``.
        sha256: SHA-256 of the bytes, 64 hex digits in either case.
        size: length in bytes, if known.
        mirrors: further sources, tried in order if the first does not deliver the right bytes.

    Raises:
        ConfigError: ``sha256`` is not 64 hexadecimal digits, or ``size`` is negative.
    """

    identifier: str
    source: str
    md5_sum: str | None = None
    sha256: str | None = None
    size: int | None = None
    mirrors: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # The definition is frozen, so object.__setattr__() stores the normalized values.
        if self.md5_sum is not None:
            # Other texts, such as placeholders, are accepted as in the original DataStack. They
            # fail when a resource is compared with them.
            if not isinstance(self.md5_sum, str):
                raise self._digest_error("md5_sum")
            object.__setattr__(self, "md5_sum", self.md5_sum.lower())
        if self.sha256 is not None:
            if not _is_sha256(self.sha256):
                raise self._digest_error("sha256")
            object.__setattr__(self, "sha256", self.sha256.lower())

        if self.size is not None and self.size < 0:
            raise ConfigError(f"size of {self.identifier!r} must not be negative, got {self.size}")

        # A text is a sequence too, of sources with one letter each.
        mirrors: object = self.mirrors
        if isinstance(mirrors, str):
            raise ConfigError(
                f"mirrors of {self.identifier!r} must be a list of sources, "
                f"got the text {mirrors!r}"
            )
        object.__setattr__(self, "mirrors", tuple(self.mirrors))

    @property
    def sources(self) -> tuple[str, ...]:
        """All sources, in order."""
        return (self.source, *self.mirrors)

    def _digest_error(self, field: str) -> ConfigError:
        """Return the error of an invalid digest."""
        return ConfigError(
            f"{field} of {self.identifier!r} must be hexadecimal digits (sha256: 64), "
            f"got {getattr(self, field)!r}"
        )


def _is_sha256(value: object) -> bool:
    """Return whether a value is a SHA-256: 64 hexadecimal digits."""
    return isinstance(value, str) and _SHA256.fullmatch(value) is not None
