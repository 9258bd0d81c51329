"""Versions are in the order in which people count."""

from __future__ import annotations

import random

from data_stack.util.versions import version_key

IN_ORDER = ["", "2024-1-9", "2024-1-10", "rev-9", "rev-10", "1.0.0rc1", "1.0.0", "9.0.0", "10.0.0"]


def test_versions_are_sorted_by_their_numbers() -> None:
    shuffled = random.Random(0).sample(IN_ORDER, len(IN_ORDER))

    assert sorted(shuffled, key=version_key) == IN_ORDER


def test_equal_versions_keep_one_order() -> None:
    assert sorted(["1.0.0", "1.0", "v1"], key=version_key) == ["1.0", "1.0.0", "v1"]
