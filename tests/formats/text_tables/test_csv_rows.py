"""Rows of CSV files that stay in their file: values, changes, copies, processes."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import multiprocessing
import os
import pickle
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from full_disk import files_limited
from hypothesis import given
from hypothesis import strategies as st

import data_stack
from data_stack.exception import DatasetFileCorruptError, ResourceChangedError, StorageFullError
from data_stack.formats.text_tables.csv_blocks import CSVBlocks
from data_stack.formats.text_tables.csv_options import CSVOptions
from data_stack.formats.text_tables.csv_rows import CSVRows, open_csv_rows
from data_stack.formats.text_tables.kept_folder import FOLDER_VARIABLE
from data_stack.formats.text_tables.text_file import TextFile

_NUMBERS = ["", "1", "-7", "2.5", "1e400", "12345678901234567890", "0x10", "007", "nan"]
_TIMES = ["2020-01-01", "2020-01-01 10:00:00", "12:30:00"]
_TEXTS = ["true", "x", "é", '"a\r\nb"', '"q""q"', 'i"j', '""']
_CELLS = st.sampled_from([*_NUMBERS, *_TIMES, *_TEXTS])


_FILLER = "of a row " * 30


def large_file(folder: Path, n_rows: int = 60_000) -> Path:
    """A file that is too large for a table in memory, with line breaks in quotes."""
    path = folder / "large.csv"
    with path.open("w", newline="") as file:
        file.write("id,x,text\n")
        for row in range(n_rows):
            file.write(f'{row},{row / 8},"text ""{row}"",\n{_FILLER}"\n')
    return path


def lzma_compress(data: bytes) -> bytes:
    return lzma.compress(data, preset=0)


def sample_of(row: int) -> dict[str, Any]:
    return {"id": row, "x": row / 8, "text": f'text "{row}",\n{_FILLER}'}


def read_first(rows: Any, answers: Any) -> None:
    """Send some samples to another process."""
    answers.put([rows[position] for position in (0, 59_999, 31)])


# ---------------------------------------------------------------------- values


@pytest.mark.filterwarnings("ignore:.*a quoted field goes over several lines:UserWarning")
@given(
    st.lists(st.tuples(_CELLS, _CELLS), max_size=6),
    st.sampled_from(["\n", "\r\n", "\r", "\n\n"]),
    st.booleans(),
    st.integers(1, 60),
    st.randoms(use_true_random=False),
)
def test_rows_are_those_of_one_block(
    cells: list[tuple[str, str]], line_break: str, ends: bool, block_bytes: int, random: Any
) -> None:
    lines = ["a,b", *(",".join(row) for row in cells)]
    data = (line_break.join(lines) + line_break * ends).encode()

    def open_rows(n_bytes: int) -> CSVRows:
        return open_csv_rows(io.BytesIO(data), CSVOptions(), {}, None, block_bytes=n_bytes)

    in_blocks = open_rows(block_bytes)
    whole = open_rows(1 << 20)
    names = whole.schema.names
    all_rows = pa.table(whole.read(None, names))
    positions = np.array([random.randrange(len(cells)) for _ in range(4)] if cells else [], int)

    assert in_blocks.schema == whole.schema
    assert in_blocks.nullable == whole.nullable
    chosen = pa.table(in_blocks.read(positions, names))
    assert repr(chosen.to_pylist()) == repr(all_rows.take(pa.array(positions)).to_pylist())
    text_rows = list(csv.reader(io.StringIO(data.decode(), newline=""), strict=True))
    assert len(all_rows) == len([row for row in text_rows if row]) - 1


def test_samples_of_a_large_file_are_read_at_any_position(tmp_path: Path) -> None:
    rows = data_stack.load(large_file(tmp_path))

    positions = [59_999, 0, 31, 31]
    batch = rows.read_batch(positions)

    assert len(rows) == 60_000
    assert [rows[position] for position in positions] == [sample_of(row) for row in positions]
    assert batch["x"].dtype == np.float64
    assert batch["id"].tolist() == positions
    assert rows.read_column("text")[-1] == sample_of(59_999)["text"]
    view = rows[10:20:3]
    assert [sample["id"] for sample in view] == [10, 13, 16, 19]


def test_a_type_may_show_in_the_last_block_only(tmp_path: Path) -> None:
    path = tmp_path / "late.csv"
    path.write_text("n,m\n" + "7,007\n" * 3_000_000 + "2.5,x\n")

    rows = data_stack.load(path)

    assert rows.column_types == {"n": "float64", "m": "str"}
    assert (rows[0], rows[3_000_000]) == ({"n": 7.0, "m": "007"}, {"n": 2.5, "m": "x"})


def test_a_row_beyond_the_limit_names_its_line() -> None:
    text = TextFile(io.BytesIO(b'a,b\n1,2\n3,"never\n' + b"closed,\n" * 100))
    blocks = CSVBlocks(text, CSVOptions(), (), None, max_row_bytes=64)

    with pytest.raises(DatasetFileCorruptError, match="line 3: a row of more than 64 bytes; if a"):
        list(blocks.iterate(16))


def test_a_ragged_row_names_its_line_in_a_large_file() -> None:
    data = b"a,b\n" + b'1,"x\ny"\n' * 100_000 + b"1,2,3\n1,2\n"

    with pytest.raises(DatasetFileCorruptError, match=r"line 200002, .* 2 columns, got 3: 1,2,3"):
        data_stack.from_csv(io.BytesIO(data))


# ---------------------------------------------------------------------- other processes


def test_another_process_reads_the_same_samples(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    answers: Any = context.Queue()
    path = large_file(tmp_path)
    packed = tmp_path / "packed.csv.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))

    for file in (path, packed):
        process = context.Process(target=read_first, args=(data_stack.load(file), answers))
        process.start()
        samples = answers.get(timeout=120)
        process.join()

        assert samples == [sample_of(row) for row in (0, 59_999, 31)]


def test_a_pickled_table_does_not_hold_its_rows(tmp_path: Path) -> None:
    path = large_file(tmp_path)

    data = pickle.dumps(data_stack.load(path))

    assert len(data) < path.stat().st_size / 4
    assert pickle.loads(data)[31] == sample_of(31)


# ---------------------------------------------------------------------- changes


def test_a_file_that_is_written_to_is_refused(tmp_path: Path) -> None:
    path = large_file(tmp_path)
    rows = data_stack.load(path)
    assert rows[1] == sample_of(1)

    with path.open("a") as file:
        file.write("1,2,3\n")

    with pytest.raises(DatasetFileCorruptError, match=r"large\.csv.* replaced while"):
        rows[2]


# ---------------------------------------------------------------------- kept columns


def test_a_kept_file_keeps_dialects_and_warnings_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "kept"))
    path = tmp_path / "odd.tsv"
    path.write_text(
        'id\tname\n1\t"a\t\n2\tb"\t\n'.replace("\t\n", "\n") + "3\tplain text\n" * 1_500_000
    )
    hour_ago = time.time() - 3600
    os.utime(path, (hour_ago, hour_ago))
    time.sleep(2.1)  # the time of the last change of the file, which cannot be set

    def open_twice(**options: Any) -> list[Any]:
        opened = []
        for _ in range(2):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                table = data_stack.load(path, **options)
            messages = [str(warning.message) for warning in caught]
            opened.append((len(table), table[1], table.column_types, messages, table.recipe()))
        return opened

    quoted, quoted_again = open_twice()
    plain, plain_again = open_twice(quoting=csv.QUOTE_NONE)

    assert quoted == quoted_again
    assert plain == plain_again
    assert (quoted[0], plain[0]) == (1_500_001, 1_500_002)
    assert "quoted field goes over several lines" in quoted[3][0]
    assert plain[1] == {"id": 2, "name": 'b"'}
    assert len(list((tmp_path / "kept").glob("*.rows"))) == 2


# ---------------------------------------------------------------------- compressed files


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma_compress])
def test_a_compressed_file_is_copied_once(tmp_path: Path, monkeypatch: Any, compress: Any) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    packed = tmp_path / "a.csv.gz"
    packed.write_bytes(compress(large_file(tmp_path).read_bytes()))

    rows = data_stack.load(packed)
    copies = list((tmp_path / "temporary").glob("data_stack_text_*"))

    assert len(copies) == 1
    assert rows[59_999] == sample_of(59_999)
    assert pickle.loads(pickle.dumps(rows))[5] == sample_of(5)
    del rows
    assert not list((tmp_path / "temporary").glob("data_stack_text_*"))


def test_a_copy_that_is_gone_is_made_again(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    packed = tmp_path / "a.csv.gz"
    packed.write_bytes(gzip.compress(large_file(tmp_path).read_bytes()))
    pickled = pickle.dumps(data_stack.load(packed))

    assert pickle.loads(pickled)[7] == sample_of(7)

    packed.write_bytes(gzip.compress(large_file(tmp_path, 50_000).read_bytes()))
    with pytest.raises(ResourceChangedError, match=r"a\.csv\.gz"):
        pickle.loads(pickled)[7]
    assert not list((tmp_path / "temporary").glob("data_stack_text_*"))


def test_another_encoding_is_copied_as_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "latin.csv"
    path.write_bytes("name,n\n".encode("utf-16") + "é,1\n".encode("utf-16-le") * 4_000_000)

    rows = data_stack.load(path, encoding="utf-16")

    assert (len(rows), rows[3_999_999]) == (4_000_000, {"name": "é", "n": 1})


def test_a_damaged_file_leaves_no_copy(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    packed = tmp_path / "a.csv.gz"
    packed.write_bytes(gzip.compress(large_file(tmp_path).read_bytes())[:-2000])

    with pytest.raises(Exception, match=r"a\.csv\.gz"):
        data_stack.load(packed)

    assert not list((tmp_path / "temporary").iterdir())


def test_a_full_disk_says_what_to_do(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    packed = tmp_path / "a.csv.gz"
    packed.write_bytes(gzip.compress(large_file(tmp_path).read_bytes()))

    with (
        files_limited(1 << 20),
        pytest.raises(StorageFullError, match=r"could not copy the text of .*a\.csv\.gz.*TMPDIR"),
    ):
        data_stack.load(packed)

    assert not list((tmp_path / "temporary").iterdir())
