"""The sources from which the parts of a combination are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.access import SampleAccess
from data_stack.dataset.iterator.layers.selection import Selection
from data_stack.dataset.iterator.layers.sequence import SequenceAccess
from data_stack.dataset.positions import Positions
from data_stack.values.stacking import ColumnArray


@dataclass(frozen=True)
class CombinedSources:
    """The sources from which the parts of a combination are read.

    Attributes:
        unwrapped: for each part its source and its positions in the source, see
            :meth:`SampleAccess.unwrap`.
        number_of_part: for each part the number of its source, shape ``(n_parts,)``. Views of one
            source have the same number.
        n_sources: how many sources there are.
        stack_samples: whether batches of all sources are their samples stacked.
        arrays: see :func:`_find_arrays`.
    """

    unwrapped: list[tuple[SampleAccess, Positions | None]]
    number_of_part: npt.NDArray[np.intp]
    n_sources: int
    stack_samples: bool
    arrays: list[list[ColumnArray]]

    @classmethod
    def of(cls, parts: Sequence[SampleAccess]) -> CombinedSources:
        """Find the sources of ``parts``."""
        unwrapped = [part.unwrap() for part in parts]
        number_of: dict[SampleAccess, int] = {}
        numbers = [number_of.setdefault(source, len(number_of)) for source, _ in unwrapped]
        arrays = _find_arrays(parts)
        stack_samples = bool(parts) and all(source.stacks_samples for source in number_of)
        return cls(
            unwrapped=unwrapped,
            number_of_part=np.array(numbers, dtype=np.intp),
            n_sources=len(number_of),
            stack_samples=bool(arrays) or stack_samples,
            arrays=arrays,
        )


def _find_arrays(parts: Sequence[SampleAccess]) -> list[list[ColumnArray]]:
    """Return for each column the arrays of the parts.

    The list is empty unless all parts are arrays, and those of a column have one dtype other than
    object and one shape of a value.
    """
    sources: list[SequenceAccess] = []
    for part in parts:
        if not isinstance(part, SequenceAccess) or not part.fixed_columns:
            return []
        sources.append(part)
    n_columns = {len(source.arrays) for source in sources}
    if len(n_columns) != 1:
        return []
    arrays_of_sources = [source.arrays for source in sources]
    columns = [list(arrays) for arrays in zip(*arrays_of_sources, strict=True)]
    for arrays in columns:
        dtypes_and_shapes = {(array.dtype, array.shape[1:]) for array in arrays}
        if len(dtypes_and_shapes) > 1 or arrays[0].dtype.hasobject:
            return []
    return columns


def gather_rows(columns: Sequence[list[ColumnArray]], selection: Selection) -> list[ColumnArray]:
    """Copy rows that are scattered over arrays.

    Args:
        columns: for each column the arrays of the parts.
        selection: the rows.
    """
    rows = list(zip(selection.parts.tolist(), selection.positions.tolist(), strict=True))
    gathered: list[ColumnArray] = []
    for arrays in columns:
        values = [arrays[part][position] for part, position in rows]
        gathered.append(np.array(values, dtype=arrays[0].dtype))
    return gathered
