"""Which records of an interrupted writer are complete, as their index shows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.records.growing_file import GrowingFile
from data_stack.formats.records.growing_target import count_complete_records


@pytest.mark.parametrize(
    ("ends", "n_bytes", "n_complete"),
    [
        ([], 0, 0),
        ([3, 5], 5, 2),
        # The bag does not have the last record.
        ([3, 5, 9], 8, 2),
        # A power cut left zeros.
        ([3, 5, 0, 0], 5, 2),
        # Empty records are records.
        ([0, 0, 3, 3], 3, 4),
    ],
)
def test_entries_within_the_bag_are_complete(
    ends: list[int], n_bytes: int, n_complete: int
) -> None:
    assert count_complete_records(np.array(ends, "<u8"), n_bytes, "x.idx") == n_complete


def test_a_smaller_entry_is_damage() -> None:
    with pytest.raises(DatasetFileCorruptError, match="entry 2 is smaller"):
        count_complete_records(np.array([3, 5, 4], "<u8"), 5, "x.idx")


def test_a_file_is_not_cut_to_more_than_it_has(tmp_path: Path) -> None:
    (tmp_path / "x.idx").write_bytes(b"12345678")

    with (
        GrowingFile(str(tmp_path / "x.idx")) as file,
        pytest.raises(DatasetFileCorruptError, match="ends at byte 8"),
    ):
        file.cut(16)
