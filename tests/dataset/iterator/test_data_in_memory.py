"""Changes of arrays and lists after a stack was read into memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from data_stack.dataset.iterator import InMemoryDatasetIterator, SequenceDatasetIterator
from data_stack.dataset.iterator.data_in_memory import digest_of_data_in_memory

ATOMS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.complex_numbers(),
    st.text(max_size=3),
    st.binary(max_size=3),
)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (1, 2),
        (1, True),
        (1, 1.0),
        (-1, -2),
        (0, 2**61 - 1),
        (0.0, -0.0),
        (-1.0, -2.0),
        ("a", b"a"),
        ("a", "b"),
        (None, 0),
        ({"label": -1}, {"label": -2}),
        ({-1: "a"}, {-2: "a"}),
        ([-1, "a"], [-2, "a"]),
        ([[-1], "a", {}], [[-2], "a", {}]),
        (np.float64(0.0), np.float64(-0.0)),
        (np.array([1, 2]), np.array([1, 3])),
    ],
)
def test_a_changed_value_of_a_list_is_noticed(before: Any, after: Any) -> None:
    column = [before, 5]
    in_memory = InMemoryDatasetIterator(SequenceDatasetIterator([column]))

    has_changed_at_first = in_memory.has_changed_sources()
    column[0] = after

    assert not has_changed_at_first
    assert in_memory.has_changed_sources()


@given(st.lists(ATOMS, min_size=1, max_size=4))
def test_equal_lists_of_atoms_have_one_digest(values: list[Any]) -> None:
    column = SequenceDatasetIterator([values])
    same_column = SequenceDatasetIterator([[*values]])

    assert digest_of_data_in_memory(column) == digest_of_data_in_memory(same_column)


@given(st.lists(ATOMS, min_size=1, max_size=4), st.lists(ATOMS, min_size=1, max_size=4))
def test_lists_that_differ_have_two_digests(values: list[Any], others: list[Any]) -> None:
    # repr() tells apart types, signs and numbers, as a fingerprint does.
    assume(repr(values) != repr(others))

    digest = digest_of_data_in_memory(SequenceDatasetIterator([values]))
    other_digest = digest_of_data_in_memory(SequenceDatasetIterator([others]))

    assert digest != other_digest


def test_a_fingerprint_is_not_that_of_changed_data() -> None:
    labels = [-1, 0]
    in_memory = SequenceDatasetIterator([labels]).in_memory()

    labels[0] = -2

    assert in_memory.fingerprint() != SequenceDatasetIterator([labels]).fingerprint()
