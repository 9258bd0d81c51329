"""Where the sample, the target and the tag are after a map that names its columns."""

from __future__ import annotations

import pytest

from data_stack.dataset.iterator.layers.mapped_meta import follow_role


@pytest.mark.parametrize(
    ("position", "names_before", "names", "position_after"),
    [
        (1, ["image", "label"], ["label", "image"], 0),
        (-1, ["image", "label"], ["label", "image"], 0),
        ("label", [], ["image", "label"], 1),
        (1, [], ["image", "label"], 1),
        (-1, [], ["image", "label"], 1),
    ],
)
def test_a_role_moves_with_the_name_of_its_column(
    position: int | str, names_before: list[str], names: list[str], position_after: int
) -> None:
    assert follow_role("target", position, names_before, names) == position_after


def test_a_renamed_column_keeps_its_role_at_its_position() -> None:
    assert follow_role("target", 1, ["image", "label"], ["image", "digit"]) == 1


@pytest.mark.parametrize("position", [1, "label"])
def test_a_role_without_column_is_its_own_word(position: int | str) -> None:
    # at position 1 there is another column of before now
    assert follow_role("target", position, ["image", "label", "tag"], ["image", "tag"]) == "target"
