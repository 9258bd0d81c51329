"""DataFrames whose columns combine with lists by ``&``, ``|`` and ``^``, which pandas 3 refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd


class ListSeries(pd.Series):
    """A Series that accepts lists as arrays."""

    @property
    def _constructor(self) -> Any:
        return ListSeries

    def __and__(self, other: Any) -> Any:
        return super().__and__(_as_array(other))

    def __or__(self, other: Any) -> Any:
        return super().__or__(_as_array(other))

    def __xor__(self, other: Any) -> Any:
        return super().__xor__(_as_array(other))

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__


class ListFrame(pd.DataFrame):
    """A DataFrame of such Series."""

    @property
    def _constructor(self) -> Any:
        return ListFrame

    @property
    def _constructor_sliced(self) -> Any:
        return ListSeries


def _as_array(other: Any) -> Any:
    return np.asarray(other) if isinstance(other, (list, tuple)) else other
