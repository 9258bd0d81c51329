"""One round of cross validation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic

if TYPE_CHECKING:
    # The TypeVar of typing_extensions has a default, so that an annotation may be just Fold.
    from typing_extensions import TypeVar

    IteratorT = TypeVar("IteratorT", covariant=True, default=Any)
else:
    from typing import TypeVar

    IteratorT = TypeVar("IteratorT", covariant=True)


@dataclass(frozen=True)
class Fold(Generic[IteratorT]):
    """One round of cross validation: ``train, test = fold``.

    Attributes:
        train: the samples of all other folds.
        test: the samples of this fold; each sample is in the test part of exactly one fold.
        number: the number of the fold, from 0.
    """

    train: IteratorT
    test: IteratorT
    number: int = 0

    def __iter__(self) -> Iterator[IteratorT]:
        return iter((self.train, self.test))
