"""Recognizes texts that pyarrow reads as other times.

Old versions of pyarrow do not check the range of nanoseconds, the years 1677 to 2262: they read
``2500-01-01`` as a time in 1915. New versions raise an error.
"""

from __future__ import annotations

import functools
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

#: The number of a time or duration that is none in numpy, but NaT.
NOT_A_TIME: Final = -(2**63)

#: The first time in nanoseconds that all versions of pyarrow read: that of a whole second.
_FIRST_TIME: Final = -9_223_372_036_000_000_000

#: A year has this many digits at the beginning of a text.
_DIGITS_OF_YEAR: Final = 4


def may_be_misread(type_: pa.DataType) -> bool:
    """Return whether pyarrow may read texts as other times of a type."""
    has_nanoseconds = pa.types.is_timestamp(type_) and type_.unit == "ns"
    return has_nanoseconds and _wraps_around()


@functools.cache
def _wraps_around() -> bool:
    """Return whether pyarrow reads texts beyond the range of nanoseconds."""
    try:
        pa.array(["2500-01-01"]).cast(pa.timestamp("ns"))
    except pa.ArrowInvalid:
        return False
    return True


def times_are_exact(times: Any, texts: Any) -> bool:
    """Return whether times in nanoseconds are those of texts.

    A time that wrapped around is 584 years away.

    Args:
        times: the texts as pyarrow reads them.
        texts: the texts without spaces around them.
    """
    nanoseconds = times.cast(pa.int64())
    years = pc.year(nanoseconds.cast(pa.timestamp("ns")))
    years_of_texts = pc.utf8_slice_codeunits(texts, 0, _DIGITS_OF_YEAR).cast(pa.int64())
    # The year of a text with a time zone is a local one.
    are_of_year = pc.less_equal(pc.abs(pc.subtract(years, years_of_texts)), 1)
    are_in_range = pc.greater_equal(nanoseconds, _FIRST_TIME)
    # pc.all() leaves nulls out.
    return bool(pc.all(pc.and_(are_of_year, are_in_range), min_count=0).as_py())
