"""Times of different units say the same wherever they meet: no batch, order, split, gap, digest or
report lets them wrap.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from data_stack.dataset.iterator import CombinedDatasetIterator, SequenceDatasetIterator
from data_stack.exception import ConfigError

FAR = np.array(["9999-12-31", "NaT", "2019-01-01"], "M8[D]")
EXACT = np.array(["2020-01-01T00:00:00.000000001", "NaT", "2018-01-01T00:00"], "M8[ns]")
WHOLE = np.array(["2020-01-01T00:00:00.000001", "NaT", "2018-01-01T00:00"], "M8[ns]")


def combined(*parts: Any) -> CombinedDatasetIterator:
    return CombinedDatasetIterator([SequenceDatasetIterator([part]) for part in parts])


def test_times_that_no_common_unit_holds_become_objects() -> None:
    column = combined(FAR, WHOLE).read_column(0)

    assert column.dtype == np.dtype(object)
    assert [str(value) for value in column[[0, 1]]] == ["9999-12-31", "NaT"]
    assert column[3] == WHOLE[0]


@pytest.mark.parametrize("late", [EXACT, WHOLE])
@pytest.mark.parametrize(
    ("descending", "expected"), [(False, [5, 2, 3, 0, 1, 4]), (True, [0, 3, 2, 5, 1, 4])]
)
def test_samples_are_sorted_by_instant_whatever_the_units(
    late: Any, descending: bool, expected: list[int]
) -> None:
    ordered: Any = combined(FAR, late).sort(0, descending=descending)

    assert list(ordered.indices) == expected


@pytest.mark.parametrize(
    "times", [np.array(["1700-01-01", "2250-01-01"], "M8[ns]"), [FAR[0], EXACT[0]]]
)
@pytest.mark.parametrize(
    "gap", [np.timedelta64(1, "D"), timedelta(days=1), np.timedelta64(1, "ns")]
)
def test_a_window_spans_no_gap_beyond_its_unit(times: Any, gap: Any) -> None:
    iterator = SequenceDatasetIterator([times])

    assert len(iterator.windows(2, order_by=0, max_gap=gap)) == 0
    assert len(iterator.windows(2, order_by=0)) == 1


def test_a_gap_in_months_is_refused_for_days() -> None:
    with pytest.raises(ConfigError, match="cannot be compared"):
        SequenceDatasetIterator([FAR[[0, 2]]]).windows(
            2, order_by=0, max_gap=np.timedelta64(1, "M")
        )
