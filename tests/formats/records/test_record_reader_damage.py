"""Damaged record datasets: every truncation, every flipped bit; an error of ours or the right data,
never anything else.
"""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import granular
import numpy as np
import pytest
from fault_records import SPECS, sample
from layer_laws import as_plain
from process_harness import flip_file, flipped
from sizes import sized
from writing import append_all

from data_stack.exception import DatasetFileCorruptError, DataStackError
from data_stack.formats import records
from data_stack.formats.records import ColumnType, RecordReader, RecordWriter


def write(folder: Path, kind: str) -> Path:
    append_all(RecordWriter(folder, SPECS[kind]), (sample(kind, i) for i in range(3)))
    return folder


@pytest.fixture(scope="module", params=SPECS)
def dataset(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("tiny") / "data", request.param)


def ways(reader: Any, n_samples: int) -> Iterator[Callable[[], Any]]:
    """Reads all of it in each way."""
    for position in range(n_samples):
        yield functools.partial(reader.__getitem__, position)
    yield lambda: list(reader)
    yield lambda: reader.read_batch(range(n_samples)[::-1])
    for name in reader.spec:
        yield functools.partial(reader.read_column, name)


def read_or_refused(
    folder: Path, expected: RecordReader, options: dict[str, Any]
) -> tuple[int, int]:
    """How many ways gave the right data, and how many an error of ours; whatever else is no
    answer.
    """
    try:
        reader = RecordReader(folder, **options)
    except DatasetFileCorruptError:
        return 0, 1
    n_right = n_refused = 0
    with reader:
        assert len(reader) == len(expected)
        for way, truth in zip(
            ways(reader, len(expected)), ways(expected, len(expected)), strict=True
        ):
            try:
                assert as_plain(way()) == as_plain(truth())
                n_right += 1
            except DatasetFileCorruptError:
                n_refused += 1
    return n_right, n_refused


@pytest.mark.parametrize("options", [{}, {"mapped": False}], ids=["mapped", "by range"])
def test_with_a_manifest_every_flipped_bit_that_matters_is_noticed(
    dataset: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    expected = RecordReader(dataset)
    for path in sorted(dataset.iterdir()):
        content = path.read_bytes()
        copy = tmp_path / path.name
        shutil.copytree(dataset, tmp_path, dirs_exist_ok=True)
        for offset in range(0, len(content), sized(11 if len(content) < 200 else 97, 1)):
            copy.write_bytes(flipped(content, 8 * offset + offset % 8))

            n_right, n_refused = read_or_refused(tmp_path, expected, options)

            # the indexes of rows of one size are not needed, and what is not needed is not read
            assert n_refused or path.name in ("id.idx", "x.idx")
            assert (
                n_right or path.suffix != ".bag" or path.name == "refs.bag"
            )  # other columns are whole
            with pytest.raises(DatasetFileCorruptError, match=path.name.replace(".", r"\.")):
                with RecordReader(tmp_path, columns=["id"]) as reader:
                    reader.verify()
        copy.write_bytes(content)


def test_with_a_manifest_every_truncation_is_noticed_at_opening(
    dataset: Path, tmp_path: Path
) -> None:
    shutil.copytree(dataset, tmp_path, dirs_exist_ok=True)
    for path in sorted(dataset.iterdir()):
        content = path.read_bytes()
        # without its last line break, JSON is whole
        for size in range(0, len(content.rstrip(b"\n")), sized(5 if len(content) < 200 else 61, 1)):
            (tmp_path / path.name).write_bytes(content[:size])

            with pytest.raises(DatasetFileCorruptError, match=path.name.replace(".", r"\.")):
                RecordReader(tmp_path)
        (tmp_path / path.name).write_bytes(content)


def test_a_missing_file_is_named(dataset: Path, tmp_path: Path) -> None:
    for with_manifest in (True, False):
        for path in sorted(dataset.iterdir()):
            if path.name == "manifest.json" or (
                not with_manifest and path.name in ("spec.json", "refs.bag")
            ):
                continue
            shutil.copytree(dataset, tmp_path, dirs_exist_ok=True)
            if not with_manifest:
                (tmp_path / "manifest.json").unlink()
            (tmp_path / path.name).unlink()

            with pytest.raises(DatasetFileCorruptError, match=path.name.replace(".", r"\.")):
                RecordReader(tmp_path)


@pytest.mark.parametrize(
    "record",
    [
        b"", b"\x92\x00\x90", b"\x93\x05\x90\x90", b"\x93\x00\x92\xcf\xff\xff\xff\xff\xff\xff\xff\xff\x01\x90",
        b"\x93\xff\x90\x90", b"\xdd\xff\xff\xff\xff\x00", b"\x93\x90\x05\x90", b"\x93\x92\x00\x09\x01\x90",
    ],
)  # fmt: skip
def test_references_that_lead_nowhere_are_errors_that_name_the_sample(
    tmp_path: Path, record: bytes
) -> None:
    write(tmp_path, "sequences")
    (tmp_path / "manifest.json").unlink()
    refs = (tmp_path / "refs.bag").read_bytes()
    data_bytes = int.from_bytes(refs[-8:], "little")
    first_end = int.from_bytes(refs[data_bytes : data_bytes + 8], "little")
    ends = [
        int.from_bytes(refs[start : start + 8], "little")
        for start in range(data_bytes, len(refs), 8)
    ]
    moved = [ends[0], ends[0] + len(record), ends[0] + len(record) + ends[2] - ends[1]]
    content = refs[:first_end] + record + refs[ends[1] : ends[2]]
    (tmp_path / "refs.bag").write_bytes(
        content + b"".join(end.to_bytes(8, "little") for end in moved)
    )

    with RecordReader(tmp_path) as reader:
        assert reader[0]["id"] == 0
        assert reader[2]["text"] == sample("sequences", 2)["text"]
        for way in (
            lambda: reader[1],
            lambda: reader.read_batch([0, 1]),
            lambda: reader.available(1),
            lambda: list(reader),
        ):
            with pytest.raises(DatasetFileCorruptError, match="record 1 of column 'refs'"):
                way()


def test_an_index_that_decreases_is_an_error_naming_the_record(tmp_path: Path) -> None:
    append_all(RecordWriter(tmp_path, {"name": "utf8"}), ({"name": "x" * i} for i in range(5)))
    (tmp_path / "manifest.json").unlink()
    ends = np.fromfile(tmp_path / "name.idx", "<u8")
    ends[2] = 7
    ends.tofile(tmp_path / "name.idx")

    with RecordReader(tmp_path) as reader:
        assert reader[1] == {"name": "x"}
        assert reader[4] == {"name": "xxxx"}
        for way in (lambda: reader[3], lambda: reader.read_batch([4, 3]), reader.verify):
            with pytest.raises(DatasetFileCorruptError, match=r"record 3"):
                way()


def test_blocks_beyond_the_first_are_checked_when_they_are_touched(tmp_path: Path) -> None:
    n = 3000
    with RecordWriter(
        tmp_path, {"blob": "bytes", "x": ColumnType("array", "float32", (32,))}
    ) as writer:
        writer.extend(
            {
                "blob": [bytes([i % 251]) * 100 for i in range(n)],
                "x": np.arange(32 * n, dtype=np.float32).reshape(n, 32),
            }
        )
    for name in ("blob.bag", "x.bag"):
        flip_file(tmp_path / name, 8 * 200_000)

    for mapped in (True, False):
        with RecordReader(tmp_path, mapped=mapped) as reader:
            for position in (0, 300, 1000, 2999):
                assert reader[position, ["blob"]] == {"blob": bytes([position % 251]) * 100}
            assert reader.read_column("x", [0, 1000, 2999])[:, 0].tolist() == [
                0.0,
                32000.0,
                95968.0,
            ]
            for column, damaged in (("blob", 2000), ("x", 200_000 // 137)):
                for way in (
                    lambda c, d: reader[d, [c]],
                    lambda c, d: reader.read_column(c, [0, d]),
                    lambda c, d: reader.read_column(c),
                    lambda c, d: reader.read_column(c, range(d - 2, d + 2)),
                ):
                    with pytest.raises(
                        DatasetFileCorruptError,
                        match=rf"{column}\.bag is damaged.*from byte 196,608 on",
                    ):
                        way(column, damaged)
            seen = 0
            with pytest.raises(DatasetFileCorruptError):
                for _ in reader:
                    seen += 1
            assert seen == min(196_608 // 137, 196_608 // 100)
        with pytest.raises(DatasetFileCorruptError):
            RecordReader(tmp_path, mapped=mapped).verify()


@pytest.mark.parametrize(
    ("kind", "value", "counts"), [("i64", 1, (3, 5, 2**40)), ("i64[]", [1], (5, 2**40))]
)
def test_rows_that_a_manifest_miscounts_are_refused(
    tmp_path: Path, monkeypatch: Any, kind: str, value: Any, counts: Any
) -> None:
    append_all(RecordWriter(tmp_path, {"id": kind}), [{"id": value}] * 4)
    monkeypatch.setattr("data_stack.formats.records.sample_count.MAX_RECORDS", 4)
    assert RecordReader(tmp_path)[3] == {"id": value}  # as many as there may be
    manifest = records.RecordReader(tmp_path).manifest
    assert manifest is not None
    for count in counts:
        forged = records.RecordsManifest(
            count, manifest.columns, manifest.record_bytes, manifest.files
        )
        (tmp_path / "manifest.json").write_bytes(forged.to_json())

        with pytest.raises(DataStackError):
            RecordReader(tmp_path)[0]


# ---------------------------------------------------------------------- incomplete datasets


SPEC = {"number": "i64", "text": "utf8"}


def numbered(i: int) -> dict[str, Any]:
    return {"number": i, "text": "word " * (i % 4 + 1)}


def cut(path: Path, n_bytes: int) -> None:
    os.truncate(path, path.stat().st_size - n_bytes)


#: What is done to a dataset of 10 samples, and how many are whole then.
FAULTS: dict[str, tuple[Callable[[Path], None], int]] = {
    "index torn": (lambda folder: cut(folder / "text.idx", 3), 9),
    "records cut short": (lambda folder: cut(folder / "number.bag", 1), 9),
    "records of all gone": (lambda folder: cut(folder / "number.bag", 80), 0),
    "records longer": (lambda folder: cut(folder / "text.bag", -3), 10),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_writer_resumes_uneven_columns_behind_their_common_prefix(
    tmp_path: Path, fault: str
) -> None:
    damage, n_whole = FAULTS[fault]
    append_all(
        granular.DatasetWriter(tmp_path, SPEC, granular.encoders), (numbered(i) for i in range(10))
    )
    damage(tmp_path)

    with pytest.raises(DatasetFileCorruptError, match=r"'number': \d+, 'text': \d+.*RecordWriter"):
        records.open(tmp_path, columns=["number"])
    with RecordWriter(tmp_path, SPEC) as writer:
        assert len(writer) == n_whole
        for i in range(n_whole, 12):
            writer.append(numbered(i))
    with RecordReader(tmp_path) as reader:
        assert list(reader) == [numbered(i) for i in range(12)]


@pytest.mark.parametrize("column", ["id", "words", "refs"])
def test_foreign_files_among_those_of_granular_021_are_noticed(tmp_path: Path, column: str) -> None:
    expected = [{"id": i, "words": ["a", "b"][: i % 3]} for i in range(6)]
    for name, n_samples in (("long", 6), ("short", 3)):
        append_all(
            RecordWriter(tmp_path / name, {"id": "i64", "words": "utf8[]"}), expected[:n_samples]
        )
        (tmp_path / name / "manifest.json").unlink()
    shutil.copy(tmp_path / "short" / f"{column}.bag", tmp_path / "long")

    with pytest.raises(DatasetFileCorruptError):
        records.open(tmp_path / "long")
