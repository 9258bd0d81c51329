"""WebDataset's shards: random access to what is in a tar, and tars that others read."""

from __future__ import annotations

import io
import json
import os
import pickle
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from archives import tar_of
from far_store import FarStorageConnector
from PIL import Image
from process_harness import flipped
from writing import append_all

from data_stack.dataset.iterator.access_of_iterator import access_to
from data_stack.exception import (
    ConfigError,
    DatasetFileCorruptError,
    DataStackError,
    UnsafeArchiveError,
)
from data_stack.formats.webdataset import WebDatasetIterator
from data_stack.formats.webdataset_shards import SHARD_INDEX, shard_names
from data_stack.formats.webdataset_writer import WebDatasetWriter
from data_stack.io.folder import folder_of
from data_stack.io.storage_connectors import InMemoryStorageConnector
from data_stack.testing.comparing import assert_same

PIXELS = np.random.default_rng(0).integers(0, 255, (9, 5, 6, 3), dtype=np.uint8)


def sample(i: int) -> dict[str, Any]:
    return {
        "png": PIXELS[i],
        "cls": i - 3,
        "txt": f"ü{i}",
        "json": {"a": [i, None]},
        "x.npy": np.arange(i, dtype=np.float32),
        "bin": b"\0\1",
    }


def write_tar(path: Path, files: Mapping[str, bytes], layout: int = tarfile.USTAR_FORMAT) -> Path:
    path.write_bytes(tar_of(files, "w", layout))
    return path


@pytest.fixture
def shards(tmp_path: Path) -> list[str]:
    append_all(WebDatasetWriter(tmp_path / "train", shardlen=4), (sample(i) for i in range(9)))
    return [str(tmp_path / "train" / name) for name in shard_names(folder_of(tmp_path / "train"))]


# ------------------------------------------------------------------ reading


def test_samples_come_back_as_they_were_written(shards: list[str]) -> None:
    iterator = WebDatasetIterator(shards)

    assert len(iterator) == 9
    assert iterator.fields == ("bin", "cls", "json", "png", "txt", "x.npy")
    assert_same(
        list(iterator),
        [
            {"__key__": f"{i:09d}", **{key: sample(i)[key] for key in iterator.fields}}
            for i in range(9)
        ],
    )


def test_a_mapped_picture_is_that_of_the_sample(shards: list[str]) -> None:
    iterator = WebDatasetIterator(shards, fields=["png", "cls"])
    order = [8, 0, 5, 3, 0]

    batch: Any = iterator.map(lambda picture: picture[::-1] + 1, column="png").read_batch(order)

    assert_same(batch["png"], PIXELS[order][:, ::-1] + 1)
    assert batch["cls"].tolist() == [sample(i)["cls"] for i in order]


def test_a_picture_is_decoded_when_its_value_is_asked_for(tmp_path: Path) -> None:
    picture = io.BytesIO()
    Image.fromarray(PIXELS[0]).save(picture, "png")
    files = {"0.png": picture.getvalue(), "1.png": b"no picture"}
    access = access_to(WebDatasetIterator(write_tar(tmp_path / "a.tar", files)))

    values = access.iterate_column("png", np.array([0, 1]))

    assert values is not None
    np.testing.assert_array_equal(next(values), PIXELS[0])
    with pytest.raises(DatasetFileCorruptError, match=r"a\.tar: 1\.png"):
        next(values)


def test_class_files_may_have_white_space_around_a_number(tmp_path: Path) -> None:
    files = {"0.cls": b"7\n", "1.cls": b" -12\r\n", "2.cls": b"\t+003"}

    found = WebDatasetIterator(write_tar(tmp_path / "a.tar", files)).read_column("cls")

    assert found.tolist() == [7, -12, 3]


@pytest.mark.parametrize("text", ["1_0", "٣", "0x10", "1.0", "1 0", ""])
def test_a_class_file_that_says_no_integer_is_refused(text: str, tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", {"0.cls": text.encode()})

    with pytest.raises(DatasetFileCorruptError, match=r"a\.tar: 0\.cls .* is not an integer"):
        WebDatasetIterator(path)[0]


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', '[{"b": {"c": 1, "c": 1}}]'])
def test_a_json_file_with_a_name_twice_is_refused(text: str, tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", {"0.json": text.encode()})

    with pytest.raises(DatasetFileCorruptError, match=r"0\.json .* a name occurs twice"):
        WebDatasetIterator(path)[0]


def test_values_that_need_no_decoding_are_read_together(shards: list[str]) -> None:
    access = access_to(WebDatasetIterator(shards))

    assert access.iterate_column("cls", np.array([0])) is None
    assert access.iterate_column("no column", np.array([0])) is None


def test_only_headers_and_the_requested_fields_are_fetched(tmp_path: Path) -> None:
    store = FarStorageConnector(tmp_path, block_bytes=4096)
    write_tar(
        tmp_path / "a.tar",
        {
            f"{i}.{ending}": bytes(size)
            for i in range(8)
            for ending, size in (("bin", 1 << 20), ("n", i))
        },
    )

    with store.get_resource("a.tar") as resource:
        found = WebDatasetIterator(resource, types={"n": (None, len)}).read_column("n", [7, 0, 3])

    assert found.tolist() == [7, 0, 3]
    first_bytes = 1 << 18
    assert store.fetched_bytes < first_bytes + 8 * 6 * 4096


@pytest.mark.parametrize("name", ["0.__key__", "0.__KEY__"])
def test_a_file_that_would_replace_a_key_is_refused(name: str, tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", {"0.txt": b"a", name: b"other"})

    with pytest.raises(UnsafeArchiveError, match=rf"'{name}' would replace the key of its sample"):
        list(WebDatasetIterator(path))


def test_a_key_ends_at_the_first_dot_of_its_name(tmp_path: Path) -> None:
    path = write_tar(
        tmp_path / "a.tar",
        {
            "a.b/x.left.txt": b"1",
            "a.b/x.right.txt": b"2",
            "README": b"no sample",
            "a.b/.hidden": b"",
        },
    )

    found = list(WebDatasetIterator(path))

    assert found == [{"__key__": "a.b/x", "left.txt": "1", "right.txt": "2"}]


def test_samples_may_lack_fields_unless_these_are_asked_for(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", {"1.txt": b"a", "1.cls": b"1", "2.txt": b"b"})

    assert WebDatasetIterator(path)[1] == {"__key__": "2", "txt": "b"}
    with pytest.raises(DatasetFileCorruptError, match=r"sample '2' of .*a.tar has no field 'cls'"):
        WebDatasetIterator(path, fields=["cls"])[1]
    with pytest.raises(ConfigError, match=r"no sample has a field 'clss' .did you mean 'cls'"):
        WebDatasetIterator(path, fields=["clss"])[0]
    with pytest.raises(ConfigError, match="no column 'jpg'"):
        WebDatasetIterator(path).read_column("jpg")


@pytest.mark.parametrize("ending", ["pkl", "pyd"])
def test_a_pickle_is_never_read_but_its_bytes_are_there(tmp_path: Path, ending: str) -> None:
    data = pickle.dumps(os.getcwd)
    path = write_tar(tmp_path / "a.tar", {f"1.{ending}": data, "1.txt": b"a"})

    with pytest.raises(ConfigError, match="is a pickle, which could run any code") as caught:
        WebDatasetIterator(path)[0]

    assert f"types={{'{ending}': None}}" in str(caught.value)
    assert WebDatasetIterator(path, types={ending: None})[0][ending] == data
    assert WebDatasetIterator(path, fields=["txt"])[0] == {"__key__": "1", "txt": "a"}


# ------------------------------------------------------------------ hostile tars


@pytest.mark.parametrize(
    "change",
    [
        {"type": tarfile.SYMTYPE, "linkname": "/etc/x"},
        {"type": tarfile.CHRTYPE},
        {"name": "/etc/x.txt"},
        {"name": "../x.txt"},
    ],
)
def test_what_is_no_file_of_its_own_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    info = tarfile.TarInfo("1.txt")
    info.size = 0 if "type" in change else 1
    for name, value in change.items():
        setattr(info, name, value)
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as tar:
        tar.addfile(info, io.BytesIO(b"x"))

    with pytest.raises(UnsafeArchiveError):
        len(WebDatasetIterator(path))


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as tar:
        for name in ("1.txt", "1.TXT"):
            tar.addfile(tarfile.TarInfo(name))

    with pytest.raises(UnsafeArchiveError, match="two files 'txt' of sample '1'"):
        len(WebDatasetIterator(path))


def test_a_damaged_tar_is_noticed_or_read_right(
    tmp_path: Path,
) -> None:
    whole = write_tar(tmp_path / "a.tar", {"1.bin": b"a" * 600, "2.bin": b"b"}).read_bytes()
    truth = list(WebDatasetIterator(tmp_path / "a.tar"))
    end = 512 * 6 + 1
    store = InMemoryStorageConnector()

    def read(data: bytes) -> Any:
        store.set_resource("a.tar", data)
        with store.get_resource("a.tar") as resource:
            return list(WebDatasetIterator(resource))

    for size in range(0, end, 37):
        with pytest.raises(DataStackError):
            read(whole[:size])
    for offset in range(0, 512, 3):
        try:
            found = read(flipped(whole, 8 * offset))
        except DataStackError:
            continue
        assert found == truth  # in the padding that the checksum does not tell from a blank


# ------------------------------------------------------------------ writing


def test_a_shard_without_bytes_is_called_empty(tmp_path: Path) -> None:
    (tmp_path / "a.tar").touch()

    with pytest.raises(DatasetFileCorruptError, match=r"a\.tar' is empty: it has 0 bytes"):
        len(WebDatasetIterator([tmp_path / "a.tar"]))


def test_the_same_samples_give_the_same_bytes_which_tarfile_reads(
    tmp_path: Path, shards: list[str]
) -> None:
    append_all(
        WebDatasetWriter(tmp_path / "again", name="train", shardlen=4),
        (sample(i) for i in range(9)),
    )

    for path in shards:
        assert Path(path).read_bytes() == (tmp_path / "again" / os.path.basename(path)).read_bytes()
    with tarfile.open(shards[2]) as tar:
        assert tar.getnames() == [
            f"00000000{8}.{field}" for field in ("bin", "cls", "json", "png", "txt", "x.npy")
        ]
        assert {(member.mtime, member.uid, member.mode) for member in tar} == {(0, 0, 0o644)}
    assert os.path.getsize(shards[2]) % 10240 == 0


@pytest.mark.parametrize(
    "index",
    [
        b"",
        b"[]",
        b"{}",
        json.dumps({"__kind__": "wids-shard-index-v1", "shardlist": [{"url": "../x"}]}).encode(),
    ],
)
def test_a_damaged_list_of_shards_is_an_error(
    tmp_path: Path, shards: list[str], index: bytes
) -> None:
    (tmp_path / "train" / SHARD_INDEX).write_bytes(index)

    with pytest.raises(DatasetFileCorruptError, match=SHARD_INDEX):
        shard_names(folder_of(tmp_path / "train"))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"__key__": "a.b", "txt": ""}, "key 'a.b'"),
        ({"__key__": "k0", "txt": ""}, "two samples .* have the key 'k0'"),
        ({"Text": ""}, "field 'Text'"),
        ({"pkl": {}}, "is a pickle"),
        ({"cls": 1.5}, "field 'cls' of sample 1 cannot be stored"),
        ({}, "has no field"),
    ],
)
def test_a_sample_that_a_shard_cannot_hold_is_refused_whole(
    tmp_path: Path, wrong: dict[str, Any], message: str
) -> None:
    with WebDatasetWriter(tmp_path / "d") as writer:
        writer.append({"__key__": "k0", "txt": "a"})

        with pytest.raises(ConfigError, match=message):
            writer.append(wrong)

    assert [each["txt"] for each in WebDatasetIterator(tmp_path / "d" / "d-000000.tar")] == ["a"]


def test_the_index_of_a_far_tar_takes_few_requests(tmp_path: Path) -> None:
    store = FarStorageConnector(tmp_path, block_bytes=4096)
    write_tar(tmp_path / "a.tar", {f"{number:03}.txt": b"x" * 50_000 for number in range(100)})

    with store.get_resource("a.tar") as resource:
        samples = WebDatasetIterator(resource)
        assert len(samples) == 100
        assert len(store.requests) < 20  # one for each header would be 100
        assert samples[99]["txt"] == "x" * 50_000
