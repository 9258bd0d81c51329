"""What a schema says of a column before any sample is read."""

from __future__ import annotations

from typing import Any, NamedTuple


class DeclaredColumn(NamedTuple):
    """A column as a schema declares it.

    Attributes:
        dtype: None: see the values.
        shape: of a value; None: an extent varies.
        is_nullable: whether values may be missing.
        origin: what it is in the library that it comes from, such as a type of Arrow's; None if unknown.
    """

    dtype: str | None = None
    shape: tuple[int | None, ...] | None = None
    is_nullable: bool = False
    origin: Any = None

    @property
    def is_fixed(self) -> bool:
        """Whether all values are of one dtype of numpy and one shape."""
        has_dtype = self.dtype is not None and self.dtype not in ("str", "bytes", "object", "Decimal")
        return has_dtype and not self.is_nullable and self.shape is not None and None not in self.shape
