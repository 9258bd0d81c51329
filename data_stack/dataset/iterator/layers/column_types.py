"""What the columns of samples are, to compare those of several accesses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from data_stack.dataset.iterator.access import SampleAccess
from data_stack.values.stacking import Batch, SampleForm, list_columns


@dataclass(frozen=True)
class ColumnTypes:
    """What the columns of samples are, where they are fixed.

    Attributes:
        form: the columns, in their order.
        arrays: see :func:`array_types`.
        values: the type of the value of a sample, for each column. Numbers of one dtype are
            Python's in the samples of some formats, numpy's in others.
    """

    form: SampleForm
    arrays: tuple[Any, ...]
    values: tuple[type, ...]

    @classmethod
    def of(cls, samples: SampleAccess) -> ColumnTypes:
        """Find the types by the first sample of ``samples``, which has one."""
        batch = samples.empty_batch()
        values = list_columns(samples.sample(0))
        return cls(SampleForm.of(batch), array_types(batch), tuple(map(type, values)))

    @property
    def have_objects(self) -> bool:
        """Whether a column has values that are objects, which may be of any type."""
        return any(dtype.hasobject for dtype, _ in self.arrays)


def array_types(batch: Batch) -> tuple[Any, ...]:
    """Return the dtype and the shape of a value of each column of a batch."""
    return tuple((column.dtype, column.shape[1:]) for column in list_columns(batch))
