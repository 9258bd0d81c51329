"""Base classes for the accesses of sources, maps and caches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.access import DeclaredColumn, SampleAccess
from data_stack.dataset.iterator.origins import Origin
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.values.stacking import Batch


class SourceAccess(SampleAccess):
    """Access to a source; a base class for formats.

    Where the iterator itself reads, pass it as ``source`` and set ``_keeps_access = False`` on its
    class: iterator and access would otherwise keep each other in memory. Accesses to one source are
    equal.

    Args:
        source: the iterator that reads; None where the access does.
    """

    def __init__(self, source: Any = None) -> None:
        self.source = source

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(other) is not type(self) or self.source is None:
            return False
        return self.source is other.source

    def __hash__(self) -> int:
        if self.source is None:
            return id(self)
        return id(self.source)


class OneToOneAccess(SampleAccess):
    """Access to samples that are each made of the one at the same position below.

    It is a base class for maps and encoders. Blocks, places and prefetching are those below. A
    subclass defines ``sample``.

    Args:
        below: the access to what the samples are made of.
        keeps_values: whether values are unchanged, so that ``fixed_columns`` and ``releases_gil``
            are those below.
    """

    def __init__(self, below: SampleAccess, *, keeps_values: bool = False) -> None:
        self.below = below
        self._keeps_values = keeps_values

    @property
    def n_samples(self) -> int:  # type: ignore[override]  # read-only here
        return self.below.n_samples

    @property
    def fixed_columns(self) -> bool:  # type: ignore[override]  # read-only here
        return self._keeps_values and self.below.fixed_columns

    @property
    def releases_gil(self) -> bool:  # type: ignore[override]  # read-only here
        return self._keeps_values and self.below.releases_gil

    @property
    def prefers_blocks(self) -> bool:  # type: ignore[override]  # read-only here
        return self.below.prefers_blocks

    @property
    def n_at_once(self) -> int:  # type: ignore[override]  # read-only here
        return self.below.n_at_once

    def iterate_column(self, key: int | str, positions: IndexArrayOfInts) -> Iterator[Any] | None:
        if not self._keeps_values:
            return None
        return self.below.iterate_column(key, positions)

    def blocks(self) -> npt.NDArray[np.int64] | None:
        return self.below.blocks()

    def prefetch(
        self, positions: IndexArrayOfInts, keys: Sequence[int | str] | None = None
    ) -> None:
        # Without the keys: what a column is made of may be another column below.
        self.below.prefetch(positions)

    def locate(self, position: int) -> str | None:
        return self.below.locate(position)

    def origins(self, position: int) -> Sequence[Origin]:
        return self.below.origins(position)


class CacheAccess(OneToOneAccess):
    """Access to the samples below, which are kept once they were read; a base class for caches.

    Where there are no samples, the columns are those below.
    """

    def empty_batch(self) -> Batch:
        if self.n_samples == 0:
            # Not its empty_batch(): a class of a client has columns by its read_batch().
            return self.below.batch(np.empty(0, np.intp))
        return super().empty_batch()

    def declare_columns(self) -> Mapping[str, DeclaredColumn] | None:
        return self.below.declare_columns()
