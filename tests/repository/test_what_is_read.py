"""``docs/reference/files_read.md`` is right: each name in its tables is read, named in a warning, or
left out as it says.
"""

from __future__ import annotations

import io
import pickle
import re
import shutil
import tarfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from writing import image_bytes

import data_stack
from data_stack.exception import ConfigError, LeftOutWarning, MaliciousFilePathError
from data_stack.formats import convert
from data_stack.formats.place_accounts import account_beside, account_of_datasets
from data_stack.formats.place_splits import find_places
from data_stack.formats.webdataset import WebDatasetIterator
from data_stack.io.location import Location, location_of
from data_stack.io.storage_connectors import FileStorageConnector

DOCS = Path(data_stack.__file__).parents[1] / "docs"
PAGE = DOCS / "reference" / "files_read.md"


def rows_of_page() -> dict[str, list[list[str]]]:
    """The names in each row of the table of files: read, named, and left out without a word."""
    rows = {}
    section = PAGE.read_text(encoding="utf-8").partition("## Files")[2].partition("## ")[0]
    for line in section.splitlines():
        cells = line.strip("|").split("|")
        if len(cells) == 4 and "`" in line:
            rows[cells[0].strip()] = [re.findall("`([^`]+)`", cell) for cell in cells[1:]]
    return rows


def content(name: str) -> bytes:
    suffix = Path(name).suffix.lower()
    file = io.BytesIO()
    if suffix in (".parquet", ".pq") or Path(name).name.startswith(("0000", "part-")):
        pq.write_table(pa.table({"x": [1]}), file)
    elif suffix in (".png", ".jpg", ".webp"):
        kind = {".png": "PNG", ".jpg": "JPEG", ".webp": "WEBP"}[suffix]
        return image_bytes(np.zeros((2, 3), np.uint8), kind)
    elif suffix == ".tar":
        with tarfile.open(fileobj=file, mode="w") as tar:
            member = tarfile.TarInfo(f"{Path(name).stem}.txt")
            member.size = 1
            tar.addfile(member, io.BytesIO(b"x"))
    elif suffix == ".csv":
        return b"x\n1\n"
    return file.getvalue()


def make(folder: Path, names: list[str]) -> None:
    if "x.bag" in names:
        rows = data_stack.SequenceDatasetIterator([[1]]).as_dict("x")
        convert(rows, folder, target_format="records", progress=False)
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            continue
        path.write_bytes(content(name))


def place_of(folder: Path, kind: str) -> Location:
    if kind == "path":
        return location_of(folder)
    return location_of((FileStorageConnector(folder.parent), folder.name))


def test_the_page_has_a_table_for_each_kind_of_folder() -> None:
    assert list(rows_of_page()) == ["Parquet", "images", "shards", "records", "splits"]
    for names in rows_of_page().values():
        assert all(len(some) >= 2 for some in names)


def test_the_code_of_the_page_warns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (DOCS / "what_is_read.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}

    with pytest.warns(LeftOutWarning, match=r"labels\.json"):
        exec(code, names)

    assert len(names["train"]) == 2


@pytest.mark.parametrize("kind", ["path", "store"])
@pytest.mark.parametrize("row", ["Parquet", "images", "shards", "records", "splits"])
def test_each_name_on_the_page_is_where_it_says(row: str, kind: str, tmp_path: Path) -> None:
    read, named, silent = rows_of_page()[row]
    make(tmp_path / "place", [*read, *named, *silent])
    place = place_of(tmp_path / "place", kind)

    datasets = find_places(place)
    accounts = [account_beside(place, datasets), *account_of_datasets(datasets.values())]

    left_out = {each.name for account in accounts for each in account.left_out}
    unexplained = {each.name for account in accounts for each in account.unexplained}
    # A folder beside splits is one thing.
    tops = {name.partition("/")[0] for name in named} if row == "splits" else set(named)
    assert unexplained == tops
    assert not left_out.intersection(read)
    for name in silent:
        assert name in left_out or name.partition("/")[0] in left_out


@pytest.mark.parametrize("row", ["Parquet", "images", "shards", "records", "splits"])
def test_loading_reads_and_warns_as_the_page_says(row: str, tmp_path: Path) -> None:
    read, named, silent = rows_of_page()[row]
    make(tmp_path, [*read, *named, *silent])

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loaded: Any = data_stack.load(tmp_path)

    texts = [str(each.message) for each in caught if each.category is LeftOutWarning]
    n_named = len({name.partition("/")[0] for name in named} if row == "splits" else named)
    assert len(texts) == 1
    assert f": {n_named} of what is there is left out" in texts[0]
    if row == "splits":
        assert {name: len(samples) for name, samples in loaded.items()} == {"train": 1, "test": 1}
    else:
        assert len(loaded) == (1 if row == "records" else len(read))


@pytest.mark.parametrize("row", ["Parquet", "images", "shards", "records", "splits"])
def test_without_what_is_named_there_is_no_warning(row: str, tmp_path: Path) -> None:
    read, _, silent = rows_of_page()[row]
    make(tmp_path, [*read, *silent])

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # The row of Parquet has a folder `city=…` beside files, which lack the column `city`.
        warnings.filterwarnings("ignore", "files lack columns", UserWarning)
        data_stack.load(tmp_path)

    assert data_stack.describe(str(tmp_path)).left_out == ()


def test_what_is_left_out_is_in_describe_and_report(tmp_path: Path) -> None:
    read, named, silent = rows_of_page()["images"]
    make(tmp_path, [*read, *named, *silent])

    description = data_stack.describe(str(tmp_path))
    with pytest.warns(LeftOutWarning):
        pets: Any = data_stack.load(tmp_path)
    views = [pets, pets[:2]]

    assert [text for text in description.left_out if "boxes.txt" in text]
    assert "boxes.txt" in str(description)
    for iterator in views:
        assert "boxes.txt" in str(iterator.report())


def test_splits_below_data_account_for_both_folders(tmp_path: Path) -> None:
    make(
        tmp_path,
        ["data/train-00000-of-00001.parquet", "data/test-00000-of-00001.parquet"],
    )
    make(tmp_path, ["data/x.orc", "y.orc", "README.md"])

    with pytest.warns(LeftOutWarning, match=r"2 of .*'x\.orc', 'y\.orc'"):
        loaded: Any = data_stack.load(tmp_path)

    assert sorted(loaded) == ["test", "train"]


def test_shards_that_the_index_does_not_list_are_named(tmp_path: Path) -> None:
    make(tmp_path, ["a.tar", "b.tar"])
    index = (
        '{"__kind__": "wids-shard-index-v1", "wids_version": 1, "shardlist": [{"url": "a.tar"}]}'
    )
    (tmp_path / "shardindex.json").write_text(index)

    with pytest.warns(LeftOutWarning, match=r"'b\.tar' .*not in shardindex"):
        loaded: Any = data_stack.load(tmp_path)

    assert len(loaded) == 1


def test_files_beside_records_are_named(tmp_path: Path) -> None:
    rows = data_stack.SequenceDatasetIterator([[1, 2, 3]]).as_dict("x")
    convert(rows, tmp_path / "one", progress=False)
    convert(rows, tmp_path / "many", shardlen=2, progress=False)
    make(tmp_path / "one", ["README.md"])
    make(tmp_path / "many", ["LICENSE"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [len(data_stack.load(tmp_path / name)) for name in ("one", "many")] == [3, 3]
    make(tmp_path / "one", ["notes.csv"])
    make(tmp_path / "many", ["000000/extra.dat"])

    for name, left in (("one", "notes.csv"), ("many", "000000/extra.dat")):
        with pytest.warns(LeftOutWarning, match=f"'{left}' .no file of records"):
            assert len(data_stack.load(tmp_path / name)) == 3
        assert left in str(data_stack.describe(str(tmp_path / name)))


def test_files_of_no_sample_are_named_once(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for name in ("1.txt", "README", "folder/.hidden", "labels", "folder/000017"):
            member = tarfile.TarInfo(name)
            member.size = 1
            tar.addfile(member, io.BytesIO(b"x"))
    shards = WebDatasetIterator(tmp_path / "a.tar")

    with pytest.warns(LeftOutWarning, match=r"'a\.tar, labels', 'a\.tar, folder/000017'"):
        assert len(shards) == 1

    again = pickle.loads(pickle.dumps(shards))
    assert len(again) == 1
    assert "labels" in again.account.summary()
    assert "labels" in str(again.report())


@pytest.mark.parametrize("left", ["test/x.dat", "valid/y", "dev-00000-of-00002.dat"])
def test_a_split_that_would_be_lost_is_an_error(left: str, tmp_path: Path) -> None:
    make(tmp_path, ["train.csv", left])

    with pytest.raises(ConfigError, match=r"is named as a split"):
        data_stack.load(tmp_path)


def test_a_split_behind_an_outward_link_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path / "place", ["train/cat/1.png"])
    make(tmp_path / "outside", ["cat/2.png"])
    (tmp_path / "place" / "test").symlink_to("../outside")

    with pytest.raises(ConfigError, match=r"'test' is named as a split.*DATA_STACK_FOLLOW_LINKS"):
        data_stack.load(tmp_path / "place")

    monkeypatch.setenv("DATA_STACK_FOLLOW_LINKS", str(tmp_path))
    loaded: Any = data_stack.load(tmp_path / "place")
    assert sorted(loaded) == ["test", "train"]


def test_an_empty_folder_leaves_nothing_out(tmp_path: Path) -> None:
    make(tmp_path, ["train.csv"])
    (tmp_path / "test").mkdir()

    assert list(data_stack.load(tmp_path)) == ["train"]


def test_a_snapshot_in_the_cache_of_the_hub_is_read(tmp_path: Path) -> None:
    repository = tmp_path / "datasets--me--pets"
    make(repository / "blobs", ["a.parquet", "b.parquet", "c.md"])
    data = repository / "snapshots" / "d00d" / "data"
    data.mkdir(parents=True)
    (data / "train-00000-of-00001.parquet").symlink_to("../../../blobs/a.parquet")
    (data / "test-00000-of-00001.parquet").symlink_to("../../../blobs/b.parquet")
    (data.parent / "README.md").symlink_to("../../blobs/c.md")

    loaded: Any = data_stack.load(data.parent)

    assert {name: len(rows) for name, rows in loaded.items()} == {"train": 1, "test": 1}


@pytest.mark.parametrize(
    "name", ["test.parquet", "test.csv", "test.npy", "test/cat/1.png", "test-0.tar"]
)
def test_no_format_reads_a_found_link_that_leads_out(name: str, tmp_path: Path) -> None:
    make(tmp_path / "outside", [name])
    if name.endswith(".npy"):
        np.save(tmp_path / "outside" / name, np.zeros(3))
    place = tmp_path / "place"
    shutil.copytree(tmp_path / "outside", place)
    (place / name.replace("test", "train")).parent.mkdir(parents=True, exist_ok=True)
    (place / name).rename(place / name.replace("test", "train"))
    (place / name).symlink_to(tmp_path / "outside" / name)

    with pytest.raises(MaliciousFilePathError, match="outside the folder"):
        for samples in data_stack.load(place).values():
            list(samples)
