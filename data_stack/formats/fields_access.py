"""Access to dict samples whose fields are read one by one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from data_stack.dataset.iterator import ColumnKey, SourceAccess
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.values.stacked_values import stack_values
from data_stack.values.stacking import SampleForm


class FieldsAccess(SourceAccess):
    """Access to dict samples whose fields are read one by one."""

    @abstractmethod
    def fields(self) -> Sequence[str]:
        """Return the keys of the samples."""

    @abstractmethod
    def values(self, field: str, positions: Sequence[int]) -> list[Any]:
        """Return the values of a field at some positions, in one request."""

    def columns(
        self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None = None
    ) -> list[npt.NDArray[Any]]:
        rows: Sequence[int] = range(self.n_samples)
        if positions is not None:
            rows = positions.tolist()
        # Without rows, the first value is read for its dtype and shape, and cut off below.
        rows_to_read = rows or range(min(1, self.n_samples))

        form = SampleForm("dict", tuple(self.fields()))
        columns = []
        for key in keys:
            values = self.values(form.find(key), rows_to_read)
            columns.append(stack_values(values)[: len(rows)])
        return columns
