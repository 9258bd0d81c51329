"""Rows of a text file that are read at random: from files, memory, stores; files that change."""

from __future__ import annotations

import gzip
import io
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from data_stack.exception import ResourceChangedError
from data_stack.formats.text_tables import indexed_text
from data_stack.formats.text_tables.indexed_text import IndexedText
from data_stack.formats.text_tables.line_scanner import LineScanner

_TEXT = b'\xef\xbb\xbf{"a": 1}\n\n{"a": 22}\r\n  {"a": 333}\n\n'
_ROWS = [b'{"a": 1}', b'{"a": 22}', b'{"a": 333}']


@pytest.fixture(params=[0, 1 << 20])
def max_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The size up to which texts are kept in memory."""
    monkeypatch.setattr(indexed_text, "MAX_BYTES_IN_MEMORY", request.param)
    return int(request.param)


def indexed(file: object) -> IndexedText:
    text = IndexedText(file, LineScanner)
    for _ in text.pieces():
        pass
    return text


def rows_of(text: IndexedText) -> list[bytes]:
    return [row.strip() for row in text.read_rows(np.arange(text.n_rows))]


@pytest.mark.usefixtures("max_bytes")
def test_rows_of_a_file_are_read_in_any_order(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(_TEXT)

    text = indexed(path)

    assert rows_of(text) == _ROWS
    assert [row.strip() for row in text.read_rows(np.array([2, 0, 2]))] == [
        _ROWS[2],
        _ROWS[0],
        _ROWS[2],
    ]
    assert rows_of(pickle.loads(pickle.dumps(text))) == _ROWS


@pytest.mark.usefixtures("max_bytes")
def test_a_stream_and_a_compressed_file_may_be_closed(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(_TEXT)
    with open(path, "rb") as file:
        of_stream = indexed(file)
    of_bytes = indexed(io.BytesIO(gzip.compress(_TEXT)))

    assert rows_of(of_stream) == rows_of(of_bytes) == _ROWS
    assert rows_of(pickle.loads(pickle.dumps(of_stream))) == _ROWS


def test_another_process_makes_a_lost_index_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexed_text, "MAX_BYTES_IN_MEMORY", 0)
    path = tmp_path / "a.jsonl"
    path.write_bytes(_TEXT)
    text = indexed(path)
    text.index = None

    assert rows_of(pickle.loads(pickle.dumps(text))) == _ROWS


@pytest.fixture
def text_in_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> IndexedText:
    monkeypatch.setattr(indexed_text, "MAX_BYTES_IN_MEMORY", 0)
    path = tmp_path / "a.jsonl"
    path.write_bytes(_TEXT)
    return indexed(path)


def test_a_file_that_is_written_to_is_an_error(text_in_file: IndexedText, tmp_path: Path) -> None:
    with open(tmp_path / "a.jsonl", "ab") as file:
        file.write(b'{"a": 4}\n')

    with pytest.raises(ResourceChangedError, match=r"a\.jsonl"):
        rows_of(text_in_file)


def test_a_file_that_is_cut_short_is_an_error(text_in_file: IndexedText, tmp_path: Path) -> None:
    os.truncate(tmp_path / "a.jsonl", 3)

    with pytest.raises(ResourceChangedError, match=r"a\.jsonl"):
        rows_of(text_in_file)


def test_a_replaced_file_is_read_on_by_its_process_only(
    text_in_file: IndexedText, tmp_path: Path
) -> None:
    new_path = tmp_path / "new"
    new_path.write_bytes(_TEXT.replace(b"333", b"444"))
    os.replace(new_path, tmp_path / "a.jsonl")

    assert rows_of(text_in_file) == _ROWS
    with pytest.raises(ResourceChangedError, match=r"a\.jsonl"):
        rows_of(pickle.loads(pickle.dumps(text_in_file)))


def test_more_texts_than_descriptors_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexed_text, "MAX_BYTES_IN_MEMORY", 0)
    monkeypatch.setattr("data_stack.formats.text_tables.pinned_file.most_open_files", lambda: 3)
    texts = []
    for number in range(10):
        path = tmp_path / f"{number}.jsonl"
        path.write_bytes(b'{"a": %d}\n' % number)
        texts.append(indexed(path))
    n_open = len(os.listdir("/proc/self/fd"))

    for _ in range(2):
        for number, text in enumerate(texts):
            assert rows_of(text) == [b'{"a": %d}' % number]

    assert len(os.listdir("/proc/self/fd")) <= n_open


@pytest.mark.usefixtures("max_bytes")
def test_blocks_have_a_size_and_at_least_a_row(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"{}\n" * 5 + b'{"long": 1}\n' + b"{}\n" * 2)
    text = indexed(path)

    assert text.block_ends(np.arange(8), 6) == [2, 4, 5, 6, 8]
    assert text.block_ends(np.arange(0), 6) == []
