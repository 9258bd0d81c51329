"""Text of web servers, buckets, MongoDB and published datasets: ranges, indexes, changes."""

from __future__ import annotations

import gzip
import json
import multiprocessing
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from scripted_s3 import ScriptedS3
from web_server import ScriptedServer

import data_stack
from data_stack import DatasetCard, DatasetFactory
from data_stack.dataset.meta import IteratorMeta
from data_stack.exception import ResourceChangedError
from data_stack.formats.text_tables import indexed_text, kept_folder, reading, text_copy

#: Stores the bytes of a file under a name, and returns what ``from_jsonl`` reads.
Put = Callable[[str, bytes], Any]

_ROWS = [{"id": number, "text": f"é {number}"} for number in range(5000)]
_TEXT = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in _ROWS).encode()


def _random_text() -> bytes:
    """Text of half a megabyte that does not become much smaller."""
    digits = np.random.default_rng(0).bytes(250_000).hex()
    lines = [
        f'{{"id": {row}, "text": "{digits[100 * row : 100 * row + 100]}"}}\n' for row in range(5000)
    ]
    return "".join(lines).encode()


def load(url: str, **options: Any) -> Any:
    return data_stack.load(url, **options)


@pytest.fixture(autouse=True)
def index_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the indexes; small files are read by an index as well, and theirs is kept."""
    monkeypatch.setattr(reading, "MAX_TABLE_BYTES", 0)
    monkeypatch.setattr(indexed_text, "MAX_BYTES_IN_MEMORY", 0)
    monkeypatch.setattr(indexed_text, "MIN_BYTES_TO_KEEP", 0)
    monkeypatch.setenv(kept_folder.FOLDER_VARIABLE, str(tmp_path / "indexes"))
    return tmp_path / "indexes"


@pytest.fixture
def web() -> Iterator[ScriptedServer]:
    with ScriptedServer() as server:
        yield server


def serve(server: ScriptedServer, data: bytes, etag: str, name: str = "a.jsonl") -> str:
    return server.serve(f"/{name}", data, ranges=True, headers={"ETag": f'"{etag}"'})


def n_requested_bytes(server: ScriptedServer) -> int:
    """The size of all ranges that were requested."""
    ends = [request.headers["range"].removeprefix("bytes=") for request in server.requests]
    return sum(int(last) - int(first) + 1 for first, last in (end.split("-") for end in ends))


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedS3]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-canary")
    with ScriptedS3() as server:
        yield server


@pytest.fixture(params=["web", "s3", "mongodb", "cached mongodb"])
def put(request: pytest.FixtureRequest, tmp_path: Path) -> Put:
    if request.param == "web":
        web = request.getfixturevalue("web")
        return lambda name, data: serve(web, data, "1", name)
    if request.param == "s3":
        s3 = request.getfixturevalue("s3")

        def put_object(name: str, data: bytes) -> str:
            s3.put(f"f/{name}", data)
            return str(s3.place().replace("/f?", f"/f/{name}?"))

        return put_object
    url = request.getfixturevalue("mongodb_uri")
    if request.param == "cached mongodb":
        url += f"{'&' if '?' in url else '?'}cache={tmp_path / 'cache'}"
    connector = data_stack.storage_connector_from_url(url)

    def put_resource(name: str, data: bytes) -> Any:
        connector.set_resource(name, [data])
        return connector.get_resource(name)

    return put_resource


def test_rows_are_read_in_any_order(put: Put) -> None:
    rows: Any = data_stack.from_jsonl(put("a.jsonl", _TEXT))

    assert len(rows) == len(_ROWS)
    assert [rows[index] for index in (4000, 0, -1)] == [_ROWS[4000], _ROWS[0], _ROWS[-1]]
    assert rows.read_batch([7, 4999, 7])["id"].tolist() == [7, 4999, 7]
    assert pickle.loads(pickle.dumps(rows))[1234] == _ROWS[1234]


@pytest.mark.parametrize(
    ("suffix", "compress"), [(".gz", gzip.compress), (".zst", zstandard.compress)]
)
def test_compressed_text_is_read(put: Put, suffix: str, compress: Callable[[bytes], bytes]) -> None:
    rows: Any = data_stack.from_jsonl(put(f"a.jsonl{suffix}", compress(_TEXT)))

    assert [rows[index] for index in (4000, 0, -1)] == [_ROWS[4000], _ROWS[0], _ROWS[-1]]


def test_the_next_opening_takes_the_kept_copy(
    web: ScriptedServer, index_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_copy, "MAX_BYTES_IN_MEMORY", 0)
    packed = gzip.compress(_random_text())
    url = serve(web, packed, "1", "a.jsonl.gz")
    first = load(url)[4000]
    web.requests.clear()

    again = load(url)

    assert again[4000] == first
    assert n_requested_bytes(web) < len(packed) / 3
    assert len(list(index_folder.glob("*.text"))) == 1


def test_a_changed_compressed_file_is_copied_again(
    web: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_copy, "MAX_BYTES_IN_MEMORY", 0)
    url = serve(web, gzip.compress(_TEXT), "1", "a.jsonl.gz")
    rows = load(url)
    serve(web, gzip.compress(_TEXT.replace(b"text", b"TEXT")), "2", "a.jsonl.gz")

    assert rows[4000] == pickle.loads(pickle.dumps(rows))[4000] == _ROWS[4000]
    assert list(load(url)[0]) == ["id", "TEXT"]


def test_the_next_opening_takes_the_kept_index(put: Put, index_folder: Path) -> None:
    rows: Any = data_stack.from_jsonl(put("a.jsonl", _TEXT))
    kept = {file.name: file.stat().st_ino for file in index_folder.iterdir()}

    again: Any = data_stack.from_jsonl(put("a.jsonl", _TEXT))

    assert again[77] == rows[77] == _ROWS[77]
    assert {file.name: file.stat().st_ino for file in index_folder.iterdir()} == kept
    assert len(kept) == 2


def test_another_file_of_the_same_tag_has_its_own_index(web: ScriptedServer) -> None:
    url = serve(web, b'{"id": 1}\n{"id": 22}\n', "1", "a.jsonl")
    other_url = serve(web, b'{"id": 11}\n{"id": 2}\n', "1", "b.jsonl")

    assert [row["id"] for row in load(url)] == [1, 22]
    assert [row["id"] for row in load(other_url)] == [11, 2]


def test_another_query_has_its_own_index(web: ScriptedServer, index_folder: Path) -> None:
    url = serve(web, _TEXT, "1")

    load(f"{url}?table=a")
    load(f"{url}?table=b")

    assert len(list(index_folder.iterdir())) == 4


def test_a_sample_of_a_kept_table_takes_few_bytes(web: ScriptedServer) -> None:
    text = b"".join(b'{"id": %d, "text": "%s"}\n' % (row, b"x" * 200) for row in range(20_000))
    url = serve(web, text, "1")
    load(url)
    web.requests.clear()

    assert load(url)[10_000]["id"] == 10_000

    assert n_requested_bytes(web) < len(text) / 10


# Larger than the cache of recent blocks, which would still have the old rows; long rows are fast.
_LARGE_TEXT = b"".join(b'{"id": %d, "text": "%s"}\n' % (row, b"x" * 500_000) for row in range(100))


def test_a_file_that_changes_under_the_table_is_an_error(web: ScriptedServer) -> None:
    url = serve(web, _LARGE_TEXT, "1")
    rows = load(url)
    serve(web, _LARGE_TEXT.replace(b"xx", b"yy"), "2")

    with pytest.raises(ResourceChangedError, match=r"a\.jsonl"):
        rows[0]
    with pytest.raises(ResourceChangedError, match=r"a\.jsonl"):
        pickle.loads(pickle.dumps(rows))[50]
    assert load(url)[0]["text"][0] == "y"


def test_an_object_that_changes_is_an_error_in_another_process(s3: ScriptedS3) -> None:
    s3.put("f/a.jsonl", _TEXT)
    url = s3.place().replace("/f?", "/f/a.jsonl?")
    rows = load(url)
    s3.put("f/a.jsonl", _TEXT.replace(b"text", b"TEXT"))

    with pytest.raises(ResourceChangedError, match=r"a\.jsonl"):
        pickle.loads(pickle.dumps(rows))[50]
    assert list(load(url)[0]) == ["id", "TEXT"]


def test_csv_of_a_web_server_is_read_by_its_suffix(web: ScriptedServer) -> None:
    url = serve(web, b'id,text\n1,"a\nb"\n2,c\n', "1", "a.csv")

    rows = load(url, target="id")

    assert list(rows) == [{"id": 1, "text": "a\nb"}, {"id": 2, "text": "c"}]


def test_a_web_file_without_an_etag_keeps_no_index(web: ScriptedServer, index_folder: Path) -> None:
    url = web.serve("/a.jsonl", _TEXT, ranges=True)

    assert load(url)[4321] == _ROWS[4321]
    assert not index_folder.exists()


def read_ids(rows: Any, positions: list[int], answers: Any) -> None:
    """Read some rows in a spawned process."""
    answers.put([rows[position]["id"] for position in positions])


def test_a_spawned_process_reads_rows(web: ScriptedServer) -> None:
    rows = load(serve(web, _TEXT, "1"))
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()

    process = context.Process(target=read_ids, args=(rows, [4999, 3], answers))
    process.start()

    assert answers.get(timeout=120) == [4999, 3]
    process.join()


class Notes(DatasetFactory):
    card = DatasetCard("remote-notes", "1.0.0", license="MIT")
    splits = ("train",)
    iterator_meta = IteratorMeta("text", "id", "id")

    def preprocess(self, raw: Any, prepared: Any) -> None:
        with prepared.create("train.jsonl") as file:
            file.write(_TEXT)

    def open(self, split: str, prepared: Any) -> Any:
        return data_stack.from_jsonl(prepared["train.jsonl"])


def test_text_of_a_published_dataset_is_read(web: ScriptedServer, tmp_path: Path) -> None:
    data_stack.default_repository().register("remote-notes", Notes, replace=True)
    folder = tmp_path / "published"
    data_stack.publish("remote-notes", folder, storage=tmp_path / "store")
    for path in folder.rglob("*"):
        if path.is_file():
            serve(web, path.read_bytes(), "1", f"notes/{path.relative_to(folder)}")

    train = load(f"{web.origin}/notes", split="train")

    assert train[4000] == _ROWS[4000]
    assert np.array_equal(train.read_column("id", [3, 2]), [3, 2])
