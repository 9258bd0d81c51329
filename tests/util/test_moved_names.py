"""Names that have moved are found by their old path."""

from __future__ import annotations

import fractions

import pytest

from data_stack.util.moved_names import find_moved_names

get_moved = find_moved_names(
    "old.module", {"Ratio": "fractions.Fraction"}, since="0.2", removed_in="99.0"
)


def test_a_moved_name_is_the_new_object_with_a_warning() -> None:
    with pytest.warns(DeprecationWarning, match=r"old\.module\.Ratio .* use fractions\.Fraction"):
        moved = get_moved("Ratio")

    assert moved is fractions.Fraction


def test_a_name_that_never_was_there_is_unknown() -> None:
    with pytest.raises(AttributeError, match=r"module 'old\.module' has no attribute 'Other'"):
        get_moved("Other")
