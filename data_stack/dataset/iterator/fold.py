"""One round of cross validation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic

from data_stack.dataset.iterator.type_variables import IteratorT


@dataclass(frozen=True)
class Fold(Generic[IteratorT]):
    """One round of cross validation: ``train, test = fold``.

    Attributes:
        train: the samples of all other folds.
        test: the samples of this fold; each sample is in the test part of exactly one fold.
        number: which of the folds.
    """

    train: IteratorT
    test: IteratorT
    number: int = 0

    def __iter__(self) -> Iterator[IteratorT]:
        return iter((self.train, self.test))
