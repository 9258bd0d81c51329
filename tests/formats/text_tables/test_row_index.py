"""The index of rows: the lines that it finds, in memory and stored; damage; other processes."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from full_disk import files_limited
from hypothesis import given
from hypothesis import strategies as st

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.text_tables import row_index
from data_stack.formats.text_tables.line_scanner import LineScanner
from data_stack.formats.text_tables.row_index import RowIndex, RowIndexBuilder

_LINES = st.lists(st.sampled_from([b"{}", b"", b" ", b"\r", b" {}", b"\t\x0b", b"\xc3\xa9", b"\0"]))


def index_of(text: bytes, piece_bytes: int) -> RowIndex:
    builder = RowIndexBuilder(LineScanner())
    for start in range(0, len(text), piece_bytes):
        builder.feed(text[start : start + piece_bytes])
    return builder.finish()


def rows_of(index: RowIndex, text: bytes) -> list[bytes]:
    starts, ends = index.ranges(np.arange(index.n_rows))
    return [text[start:end] for start, end in zip(starts, ends, strict=True)]


@given(_LINES, st.integers(1, 9), st.booleans())
def test_rows_are_the_lines_that_are_not_blank(
    lines: list[bytes], piece_bytes: int, ends_with_break: bool
) -> None:
    text = b"\n".join(lines) + b"\n" * ends_with_break

    index = index_of(text, piece_bytes)

    expected = [line.strip() for line in text.split(b"\n") if line.strip()]
    assert [row.strip() for row in rows_of(index, text)] == expected


def test_a_large_index_is_a_file_until_it_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(row_index, "MAX_OFFSETS_IN_MEMORY", 10)
    text = b'{"a": 1}\n' * 1000

    index = index_of(text, 100)

    assert index.path is not None
    path = Path(index.path)
    assert path.exists()
    assert rows_of(index, text) == [b'{"a": 1}\n'] * 1000
    again = pickle.loads(pickle.dumps(index))
    assert rows_of(again, text) == [b'{"a": 1}\n'] * 1000
    pickled = pickle.dumps(index)
    del index
    assert not path.exists()
    assert pickle.loads(pickled) is None


def test_an_unfinished_index_leaves_no_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(row_index, "MAX_OFFSETS_IN_MEMORY", 10)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    builder = RowIndexBuilder(LineScanner())
    builder.feed(b"{}\n" * 1000)
    assert os.listdir(tmp_path)

    del builder

    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("n_bytes", [0, 100, 1000, 8 * 1001, 8 * 1001 + 31])
def test_on_a_full_disk_an_index_stays_in_memory(
    n_bytes: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(row_index, "MAX_OFFSETS_IN_MEMORY", 10)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    text = b'{"a": 1}\n' * 1000

    with files_limited(n_bytes):
        index = index_of(text, 100)

    assert index.path is None
    assert rows_of(index, text) == [b'{"a": 1}\n'] * 1000
    assert os.listdir(tmp_path) == []
    assert "in memory" in caplog.text


@pytest.mark.parametrize("n_rows", [0, 1, 3])
def test_a_stored_index_with_one_flipped_bit_is_refused(tmp_path: Path, n_rows: int) -> None:
    path = tmp_path / "index"
    path.write_bytes(b"".join(index_of(b"{}\n" * n_rows, 100).stored_pieces("index")))
    data = path.read_bytes()
    assert RowIndex.open(str(path)).n_rows == n_rows

    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with pytest.raises(DatasetFileCorruptError):
            RowIndex.open(str(path))


def test_a_stored_index_under_another_name_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "index"
    path.write_bytes(b"".join(index_of(b"{}\n{}\n", 100).stored_pieces("index")))
    other_path = path.rename(tmp_path / "other")

    with pytest.raises(DatasetFileCorruptError, match="other"):
        RowIndex.open(str(other_path))


def test_a_stored_index_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "index"
    path.write_bytes(b"".join(index_of(b"{}\n{}\n", 100).stored_pieces("index")))
    data = path.read_bytes()

    for size in range(len(data)):
        path.write_bytes(data[:size])
        with pytest.raises(DatasetFileCorruptError):
            RowIndex.open(str(path))
