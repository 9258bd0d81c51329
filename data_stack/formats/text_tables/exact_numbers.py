"""Whether numbers of Arrow are what their texts say."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from data_stack.values.text_numbers import float_of

#: From here on float64 lacks some integers.
FIRST_INEXACT: Final = float(1 << 53)


def floats_are_exact(numbers: pa.ChunkedArray, trimmed: pa.ChunkedArray) -> bool:
    """Whether floats are what their texts say, apart from the rounding of fractions."""
    are_integers = pc.match_substring_regex(trimmed, "^[+-]?[0-9]{16,}$")
    are_large = pc.and_(are_integers, pc.greater_equal(pc.abs(numbers), FIRST_INEXACT))
    are_extreme = pc.or_(pc.is_inf(numbers), pc.equal(numbers, 0.0))
    doubtful = pc.unique(trimmed.filter(pc.or_(are_large, are_extreme)))
    return all(float_of(text) is not None for text in doubtful.to_pylist())


def narrow_floats(doubles: Any, type_: pa.DataType) -> Any:
    """Floats of 16 or 32 bits; None if one is out of range, or an integer that the type lacks. Fractions are rounded."""
    narrow = doubles.cast(type_, safe=False)
    back = narrow.cast(pa.float64())
    is_changed = pc.not_equal(back, doubles)
    is_whole = pc.equal(pc.floor(doubles), doubles)
    is_lost = pc.or_(pc.is_inf(back), pc.equal(back, 0.0))
    return None if pc.any(pc.and_(is_changed, pc.or_(is_whole, is_lost))).as_py() else narrow
