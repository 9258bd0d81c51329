"""The origins of samples name the file and the row, which another library finds there."""

from __future__ import annotations

import csv
import json
import re
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import data_stack
from data_stack.dataset.iterator.access_of_iterator import access_to
from data_stack.formats.conversion import convert
from data_stack.formats.parquet import ParquetDataset

N_SAMPLES = 23
IDS = [7 * number + 3 for number in range(N_SAMPLES)]

#: Finds the row, and the file, in a location.
ROW = re.compile(r"row (\d+) of (.*)")


def numbers_of(location: str) -> tuple[int, str]:
    matched = ROW.fullmatch(location)
    assert matched is not None, location
    return int(matched[1]), matched[2]


# ---------------------------------------------------------------------- formats


def write_csv(folder: Path) -> Any:
    with open(folder / "a.csv", "w", newline="") as file:
        csv.writer(file).writerows([["id"], *[[number] for number in IDS]])
    return data_stack.from_csv(folder / "a.csv")


def find_in_csv(folder: Path, location: str) -> int:
    row, name = numbers_of(location)
    assert Path(name).name == "a.csv"
    with open(folder / "a.csv", newline="") as file:
        return int(list(csv.DictReader(file))[row]["id"])


def write_json_lines(folder: Path) -> Any:
    lines = [json.dumps({"id": number}) for number in IDS]
    (folder / "a.jsonl").write_text("\r\n".join(lines))
    return data_stack.from_jsonl(folder / "a.jsonl")


def write_filtered_json_lines(folder: Path) -> Any:
    write_json_lines(folder)
    return data_stack.from_jsonl(folder / "a.jsonl", filters=[("id", ">", 50)])


def write_large_json_lines(folder: Path) -> Any:
    """A file whose rows are not kept in memory."""
    text = "x" * (1 << 20)
    lines = [json.dumps({"id": number, "text": text}) for number in IDS]
    (folder / "a.jsonl").write_text("\n".join(lines))
    return data_stack.from_jsonl(folder / "a.jsonl", filters=[("id", "<", 100)])


def find_in_json_lines(folder: Path, location: str) -> int:
    row, name = numbers_of(location)
    assert Path(name).name == "a.jsonl"
    number: int = json.loads((folder / "a.jsonl").read_text().splitlines()[row])["id"]
    return number


def write_parquet(folder: Path) -> Any:
    pq.write_table(pa.table({"id": IDS[:15]}), folder / "a.parquet", row_group_size=6)
    pq.write_table(pa.table({"id": IDS[15:]}), folder / "b.parquet", row_group_size=6)
    return ParquetDataset([folder / "a.parquet", folder / "b.parquet"])


def find_in_parquet(folder: Path, location: str) -> int:
    matched = re.fullmatch(r"row (\d+) of row group (\d+) of (.*)", location)
    assert matched is not None
    row, group, name = matched.groups()
    table = pq.ParquetFile(folder / Path(name).name).read_row_group(int(group))
    number: int = table["id"][int(row)].as_py()
    return number


def write_hdf5(folder: Path) -> Any:
    with h5py.File(folder / "a.h5", "w") as file:
        file["id"] = IDS
    return data_stack.load(str(folder / "a.h5"))


def find_in_hdf5(folder: Path, location: str) -> int:
    row, name = numbers_of(location)
    assert Path(name).name == "a.h5"
    with h5py.File(folder / "a.h5") as file:
        return int(file["id"][row])


def write_records(folder: Path) -> Any:
    convert(
        data_stack.from_numpy({"id": np.array(IDS)}),
        folder / "a",
        target_format="records",
        shardlen=10,
    )
    return data_stack.load(str(folder / "a"))


def find_in_records(folder: Path, location: str) -> int:
    matched = re.fullmatch(r"record (\d+) of (.*)", location)
    assert matched is not None
    record, name = matched.groups()
    (shard,) = [path for path in (folder / "a").iterdir() if path.name in name]
    records: Any = data_stack.load(str(shard))
    return int(records[int(record)]["id"])


def write_tar(folder: Path) -> Any:
    convert(data_stack.from_numpy({"id": np.array(IDS)}), folder / "a.tar")
    return data_stack.load(str(folder / "a.tar"))


def find_in_tar(folder: Path, location: str) -> int:
    matched = re.fullmatch(r"'(.*)' of (.*)", location)
    assert matched is not None
    with tarfile.open(folder / "a.tar") as archive:
        (member,) = [one for one in archive.getmembers() if one.name.split(".")[0] == matched[1]]
        content = archive.extractfile(member)
        assert content is not None
        return int(content.read())


def write_images(folder: Path) -> Any:
    (folder / "images").mkdir()
    for number in IDS:
        Image.new("L", (2, 3), number).save(folder / "images" / f"{number:03}.png")
    return data_stack.load(str(folder / "images"))


def find_image(folder: Path, location: str) -> int:
    with Image.open(folder / "images" / Path(location).name) as picture:
        value = picture.getpixel((0, 0))
    assert isinstance(value, int)
    return value


FORMATS: dict[str, tuple[Callable[[Path], Any], Callable[[Path, str], int]]] = {
    "CSV": (write_csv, find_in_csv),
    "JSON lines": (write_json_lines, find_in_json_lines),
    "JSON lines, filtered": (write_filtered_json_lines, find_in_json_lines),
    "JSON lines, in a large file": (write_large_json_lines, find_in_json_lines),
    "Parquet": (write_parquet, find_in_parquet),
    "HDF5": (write_hdf5, find_in_hdf5),
    "records": (write_records, find_in_records),
    "tar": (write_tar, find_in_tar),
    "images": (write_images, find_image),
}


def id_of(sample: Any) -> int:
    """The identifier of a sample; of a picture, its pixels."""
    value = sample
    if isinstance(sample, dict):
        value = sample.get("id", sample.get("image"))
    return int(np.ravel(value)[0])


@pytest.mark.parametrize("name", FORMATS)
def test_each_sample_lies_where_its_origin_says(name: str, tmp_path: Path) -> None:
    write, find = FORMATS[name]

    shuffled = write(tmp_path).shuffle(1)

    assert len(shuffled) > 5
    for position in range(len(shuffled)):
        (origin,) = access_to(shuffled).origins(position)
        assert origin.location is not None
        assert find(tmp_path, origin.location) == id_of(shuffled[position])


def test_a_table_of_memory_is_in_no_file() -> None:
    samples = data_stack.from_arrow(pa.table({"id": IDS}))

    (origin,) = access_to(samples).origins(3)

    assert origin.location is None
    assert origin.position == 3
