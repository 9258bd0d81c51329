"""Which samples are chosen to be drawn, and which parts of them are shown."""

from __future__ import annotations

import numpy as np
import pytest

from data_stack.show.sample_parts import choose_by_class, default_keys, label_text, part_of

POSITIONS = [10, 11, 12, 13, 14, 15]
LABELS = [1, 1, 0, "a", 0, 1]


def test_chosen_positions_alternate_between_the_classes() -> None:
    chosen = choose_by_class(POSITIONS, LABELS, n_samples=5, per_class=None)

    assert chosen == [12, 10, 13, 14, 11]


def test_chosen_positions_per_class_go_class_after_class() -> None:
    chosen = choose_by_class(POSITIONS, LABELS, n_samples=6, per_class=2)

    assert chosen == [12, 14, 10, 11, 13]


def test_first_picture_and_first_number_of_a_dict_are_shown() -> None:
    sample = {"name": "a cat", "photo": np.zeros((8, 8, 3), np.uint8), "label": 3}

    assert default_keys(None, sample) == ("photo", "name")
    assert default_keys(None, {"photo": sample["photo"], "label": 3}) == ("photo", "label")


@pytest.mark.parametrize(
    ("sample", "key", "part"),
    [((1, 2), 1, 2), ((1, 2), -2, 1), ((1, 2), 2, None), ({"a": 3}, "b", None), (4, 0, 4)],
)
def test_missing_parts_of_samples_are_none(sample: object, key: object, part: object) -> None:
    assert part_of(sample, key) == part  # type: ignore[arg-type]  # keys of several types


def test_labels_show_the_names_of_their_classes() -> None:
    assert label_text(1, ["cat", "dog"]) == "dog"
    assert label_text(np.array([1, 0]), ["cat", "dog"]) == "cat"
    assert label_text(5, ["cat", "dog"]) == "5"
    assert label_text(None, ["cat", "dog"]) == ""
