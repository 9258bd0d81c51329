"""Every file and column of a Parquet folder is read, or named in a warning or error."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from data_stack_petastorm import make_batch_reader

import data_stack
from data_stack.exception import LeftOutWarning, ManagedTableError, ResourceNotFoundError
from data_stack.formats import convert
from data_stack.formats.parquet import ParquetDataset, generate_metadata
from data_stack.formats.parquet.footers import LATER_COLUMN
from data_stack.io.storage_connectors import FileStorageConnector

Open = Callable[[Path], Any]

OPENERS: dict[str, Open] = {
    "load": lambda path: data_stack.load(str(path)),
    "class": ParquetDataset,
    "store": lambda path: ParquetDataset(FileStorageConnector(path.parent), prefix=path.name),
    "filesystem": lambda path: ParquetDataset(str(path), filesystem=pafs.LocalFileSystem()),
}


def write(path: Path, **columns: list[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return path


def ids(rows: Any) -> list[int]:
    return sorted(int(row["id"]) for row in rows)


@pytest.mark.parametrize("opener", OPENERS)
def test_files_of_other_names_beside_parquet_are_read(opener: str, tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    names = ["a.parquet", "B.PARQUET", "c.Pq", "000000_0", "part-00000", "sub/part-r-00001"]
    for number, name in enumerate(names):
        write(folder / name, id=[number])
    for name in ("README.md", "LICENSE", "_SUCCESS", ".part.crc", "dataset_info.json"):
        (folder / name).write_text("{}")

    assert ids(OPENERS[opener](folder)) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("opener", OPENERS)
def test_what_is_no_parquet_is_named_in_one_warning(opener: str, tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    write(folder / "a.parquet", id=[1])
    for name in ("b.csv", "c", "d.json", "e.orc", "sub/f.avro"):
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x\n1\n")

    with pytest.warns(
        LeftOutWarning, match=r"5 of what is there .*'b\.csv', 'c', 'd\.json'"
    ) as all_:
        rows = OPENERS[opener](folder)

    assert ids(rows) == [1]
    assert len(all_) == 1
    assert all_[0].filename == __file__
    account = getattr(rows, "account", None) or rows.underlying_iterators[0].account
    assert account.n_read == 1
    assert len(account.unexplained) == 5


def test_without_any_parquet_the_error_says_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "a.orc").write_text("x")

    with pytest.raises(ResourceNotFoundError, match=r"no Parquet files; it holds 'a\.orc'"):
        ParquetDataset(tmp_path)


def test_hidden_files_are_in_the_account_only(tmp_path: Path) -> None:
    for name in ("a.parquet", "_temporary/b.parquet", ".c.parquet"):
        write(tmp_path / name, id=[1])

    dataset = ParquetDataset(tmp_path)

    assert len(dataset) == 1
    assert [each.name for each in dataset.account.left_out] == [
        ".c.parquet",
        "_temporary/b.parquet",
    ]
    assert dataset.account.summary() == ""


@pytest.mark.parametrize("opener", OPENERS)
def test_columns_that_only_later_files_have_are_named(opener: str, tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    write(folder / "a.parquet", id=[1])
    write(folder / "b.parquet", id=[2], extra=[1.0], struct=[{"x": 1}])
    write(folder / "c.parquet", id=[3], extra=[1.0])

    with pytest.warns(LeftOutWarning, match=r"'b\.parquet, column extra'.*the first file"):
        rows = OPENERS[opener](folder)

    assert ids(rows) == [1, 2, 3]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        chosen = ParquetDataset(folder, columns=["id"])
    assert ids(chosen) == [1, 2, 3]


def test_later_columns_are_known_from_a_manifest_too(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", id=[1])
    write(tmp_path / "b.parquet", id=[2], extra=[1.0])
    generate_metadata(tmp_path)

    with pytest.warns(LeftOutWarning, match="column extra"):
        dataset = ParquetDataset(tmp_path)

    assert [each.rule for each in dataset.account.unexplained] == [LATER_COLUMN]


# ------------------------------------------------------------------ tables with a log of their own


def delta(root: Path) -> None:
    (root / "_delta_log").mkdir(parents=True)
    (root / "_delta_log" / f"{0:020}.json").write_text(json.dumps({"add": {"path": "a.parquet"}}))
    write(root / "a.parquet", id=[1])


def hudi(root: Path) -> None:
    (root / ".hoodie").mkdir(parents=True)
    (root / ".hoodie" / "hoodie.properties").write_text("")
    write(root / "a.parquet", id=[1])


def iceberg(root: Path) -> None:
    (root / "metadata").mkdir(parents=True)
    (root / "metadata" / "v1.metadata.json").write_text("{}")
    write(root / "data" / "a.parquet", id=[1])


TABLES = {
    "Delta Lake": (delta, "deltalake"),
    "Apache Hudi": (hudi, "hudi"),
    "Apache Iceberg": (iceberg, "pyiceberg"),
}


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("opener", OPENERS)
def test_a_table_with_a_log_is_refused_by_its_reader(
    kind: str, opener: str, tmp_path: Path
) -> None:
    make, reader = TABLES[kind]
    make(tmp_path / "rows")

    with pytest.raises(ManagedTableError, match=f"{kind}.*{reader}"):
        OPENERS[opener](tmp_path / "rows")


@pytest.mark.parametrize("kind", TABLES)
def test_every_entry_refuses_a_table_with_a_log(kind: str, tmp_path: Path) -> None:
    make, reader = TABLES[kind]
    make(tmp_path / "rows")

    with pytest.raises(ManagedTableError, match=reader):
        convert(tmp_path / "rows", tmp_path / "out.npz")
    with pytest.raises(ManagedTableError, match=reader):
        make_batch_reader(f"file://{tmp_path}/rows")
    with pytest.raises(ManagedTableError, match=reader):
        data_stack.describe(str(tmp_path / "rows"))


def test_the_folder_of_a_partition_is_part_of_its_table(tmp_path: Path) -> None:
    delta(tmp_path / "rows")
    write(tmp_path / "rows" / "day=1" / "hour=2" / "a.parquet", id=[1])
    iceberg(tmp_path / "ice")

    write(tmp_path / "ice" / "data" / "day=1" / "a.parquet", id=[1])
    write(tmp_path / "hudi" / "2026" / "01" / "a.parquet", id=[1])
    (tmp_path / "hudi" / "2026" / "01" / ".hoodie_partition_metadata").write_text("")

    for place in ("rows/day=1", "rows/day=1/hour=2", "ice/data", "ice/data/day=1", "hudi/2026/01"):
        with pytest.raises(ManagedTableError):
            ParquetDataset(tmp_path / place)


def test_files_of_a_table_may_be_listed(tmp_path: Path) -> None:
    delta(tmp_path)

    assert ids(ParquetDataset([tmp_path / "a.parquet"])) == [1]


def test_a_folder_named_metadata_alone_is_no_iceberg(tmp_path: Path) -> None:
    write(tmp_path / "data" / "a.parquet", id=[1])
    write(tmp_path / "metadata" / "b.parquet", id=[2])

    assert ids(ParquetDataset(tmp_path)) == [1, 2]


def left_out_of(path: Path, **options: Any) -> list[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LeftOutWarning)
        rows = ParquetDataset(path, **options)
    return [left_out.name for left_out in rows.account.unexplained]


@pytest.mark.parametrize("name", OPENERS)
def test_a_column_that_contradicts_its_folder_is_named(tmp_path: Path, name: str) -> None:
    write(tmp_path / "d" / "k=1" / "a.parquet", k=[7, 8], v=[1, 2])

    with pytest.warns(LeftOutWarning, match=r"k=1/a.parquet, column k: 7 to 8 instead of 1"):
        rows = OPENERS[name](tmp_path / "d")

    assert rows[0] == {"k": 1, "v": 1}


@pytest.mark.parametrize(
    ("folder", "values", "expected"),
    [
        ("k=1", [1, 1], []),
        ("k=1", [1, None], ["1 and null instead of 1"]),
        ("k=1", [2, 2], ["2 instead of 1"]),
        ("k=a", ["a", "a"], []),
        ("k=a", ["b", "b"], ["b instead of a"]),
        ("k=2024-01-02", [date(2024, 1, 2)], []),
        ("k=2024-01-02", [date(2024, 1, 3)], ["2024-01-03 instead of 2024-01-02"]),
        ("k=1.5", [Decimal("1.50")], []),
        ("k=true", [True], []),
        ("k=__HIVE_DEFAULT_PARTITION__", [None, 1], ["1 and null instead of null"]),
    ],
)
def test_columns_are_compared_with_the_names_of_folders(
    tmp_path: Path, folder: str, values: list[Any], expected: list[str]
) -> None:
    write(tmp_path / folder / "a.parquet", k=values, v=values)

    names = left_out_of(tmp_path)

    assert names == [f"{folder}/a.parquet, column k: {text}" for text in expected]


def test_a_column_without_statistics_may_contradict_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "k=1" / "a.parquet"
    path.parent.mkdir()
    pq.write_table(pa.table({"k": [1], "v": [1]}), path, write_statistics=False)

    with pytest.warns(LeftOutWarning, match=r"k=1/a.parquet, column k' \(values without stat"):
        ParquetDataset(tmp_path)

    assert left_out_of(tmp_path, columns=["v"]) == []


def test_a_file_beside_partitions_keeps_no_value_in_silence(tmp_path: Path) -> None:
    write(tmp_path / "k=1" / "a.parquet", k=[1], v=[1])
    write(tmp_path / "z.parquet", k=[3], v=[2])

    assert left_out_of(tmp_path) == ["z.parquet, column k: 3 instead of null"]
