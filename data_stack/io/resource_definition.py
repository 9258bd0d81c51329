"""A resource to retrieve: its name, sources and digest."""

from __future__ import annotations

import re
from dataclasses import dataclass

from data_stack.exception import ConfigError


@dataclass(frozen=True)
class ResourceDefinition:
    """One resource: its identifier in the store, its sources, and its digest.

    Args:
        identifier: its name in the store (grammar: :mod:`data_stack.io.identifiers`).
        source: the first source: ``https://…``, ``http://…``, ``file:///…``, a path, or
            ``package:sklearn/datasets/data/iris.csv`` for a file inside an installed Python package.
        md5_sum: MD5 of the bytes, 32 hex digits in either case; prefer ``sha256``.
        sha256: SHA-256 of the bytes, 64 hex digits in either case.
        size: length in bytes, if known.
        mirrors: further sources, tried in order if the first does not deliver the right bytes.

    Without ``sha256`` and ``md5_sum``, any bytes are stored with a warning, and the dataset's manifest marks them as unverified.

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
        # An invalid md5_sum, such as a placeholder, fails when it is compared, as in the original.
        for field in ("md5_sum", "sha256"):
            value = getattr(self, field)
            if value is None:
                continue
            if not isinstance(value, str) or (
                field == "sha256" and not re.fullmatch("[0-9a-fA-F]{64}", value)
            ):
                raise ConfigError(
                    f"{field} of {self.identifier!r} must be hexadecimal digits (sha256: 64), got {value!r}"
                )
            object.__setattr__(self, field, value.lower())
        if self.size is not None and self.size < 0:
            raise ConfigError(f"size of {self.identifier!r} must not be negative, got {self.size}")
        mirrors: object = self.mirrors
        if isinstance(mirrors, str):
            raise ConfigError(
                f"mirrors of {self.identifier!r} must be a list of sources, got the text {mirrors!r}"
            )
        object.__setattr__(self, "mirrors", tuple(self.mirrors))

    @property
    def sources(self) -> tuple[str, ...]:
        """All sources, in order."""
        return (self.source, *self.mirrors)
