"""What type checkers know of an iterator: the type of its samples, Any unless it is stated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import (
        TypeVar,
    )  # a default, without which each annotation would need a type, is for type checkers alone

    SampleT = TypeVar("SampleT", covariant=True, default=Any)
    IteratorT = TypeVar("IteratorT", covariant=True, default=Any)
else:
    from typing import TypeVar

    SampleT = TypeVar("SampleT", covariant=True)
    IteratorT = TypeVar("IteratorT", covariant=True)
