"""Pointers of Git LFS, pages and error answers in place of data are errors, in every format and
entry.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from data_stack_petastorm import make_batch_reader
from web_server import ScriptedServer

import data_stack
from data_stack.exception import DatasetFileCorruptError, DataStackError, RetrievalError
from data_stack.formats import convert
from data_stack.formats.csv import read_csv
from data_stack.formats.hdf5 import HDF5DatasetIterator
from data_stack.formats.image_folder import ImageFolderIterator
from data_stack.formats.numpy_arrays import NpzDatasetIterator
from data_stack.formats.parquet import ParquetDataset
from data_stack.formats.torch_tensors import TensorsDatasetIterator
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.retriever import retrieve
from data_stack.io.stand_ins import check_no_stand_in, find_stand_in
from data_stack.io.storage_connectors import InMemoryStorageConnector

POINTER = (
    b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 123456\n"
)
PAGE = (
    b"<!DOCTYPE html>\n<html><head><title>Sign in</title></head><body>"
    + b"x" * 3000
    + b"</body></html>\n"
)
XML = b"<?xml version='1.0'?>\n<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
NOT_FOUND = json.dumps({"message": "Not Found", "documentation_url": "https://x", "status": "404"})

STAND_INS = {
    "Git LFS": POINTER,
    "HTML": PAGE,
    "XML": XML,
    "JSON": NOT_FOUND.encode(),
}
ENDINGS = ["csv", "tsv", "jsonl", "parquet", "npy", "npz", "h5", "pt", "tar"]


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("kind", STAND_INS)
def test_no_format_takes_it_for_data(kind: str, ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"data.{ending}"
    path.write_bytes(STAND_INS[kind])

    with pytest.raises(DatasetFileCorruptError, match=rf"data\.{ending}.* is a.*{kind}"):
        loaded: Any = data_stack.load(path)
        list(loaded)


@pytest.mark.parametrize("ending", ["parquet", "npz", "h5", "pt", "tar"])
def test_convert_names_it(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"data.{ending}"
    path.write_bytes(POINTER)

    with pytest.raises(DatasetFileCorruptError, match="git lfs pull"):
        convert(path, tmp_path / "out")


def test_classes_and_petastorm_name_it(tmp_path: Path) -> None:
    for name in ("a/b.parquet", "c/cat/d.png", "e.csv"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(POINTER)

    with pytest.raises(DatasetFileCorruptError, match="Git LFS"):
        ParquetDataset(tmp_path / "a")
    with pytest.raises(DataStackError, match="Git LFS"):
        make_batch_reader(f"file://{tmp_path}/a")
    with pytest.raises(DatasetFileCorruptError, match="Git LFS"):
        ImageFolderIterator(tmp_path / "c")[0]
    for opener in (
        lambda path: HDF5DatasetIterator(path, ["x"]),
        lambda path: NpzDatasetIterator(path, ["x"]),
        lambda path: TensorsDatasetIterator(path, ["x"]),
    ):
        with pytest.raises(DatasetFileCorruptError, match="Git LFS"):
            len(opener(tmp_path / "e.csv"))
    with pytest.raises(DatasetFileCorruptError, match="Git LFS"):
        read_csv(tmp_path / "e.csv", {"x": "int64"})


@pytest.mark.parametrize("compressed", [False, True])
def test_text_in_any_packing_is_looked_at(compressed: bool, tmp_path: Path) -> None:
    import gzip

    path = tmp_path / ("data.csv.gz" if compressed else "data.csv")
    data = b"\xef\xbb\xbf" + PAGE
    path.write_bytes(gzip.compress(data) if compressed else data)

    with pytest.raises(DatasetFileCorruptError, match="HTML page"):
        data_stack.load(path)


@pytest.mark.parametrize(
    "data",
    [
        b"version,oid\n1,2\n",
        b"version https://example.org\n",
        b"text\n<html>\n",
        b'{"title": "a", "type": "b"}\n',
        b'{"message": "hello"}\n',
        b'{"message": "a", "status": "404", "rows": 3}\n',
        b'{"error": 1}\n{"error": 2}\n',
        b'["error"]',
        b"<a>1</a>",
        b"",
    ],
)
def test_data_that_resembles_it_is_data(data: bytes) -> None:
    assert find_stand_in(data, "data.csv") is None


@pytest.mark.parametrize(
    "answer",
    [
        {"error": "Repository not found"},
        {"detail": "Not found."},
        {"code": 401, "message": "x"},
        {"type": "about:blank", "title": "Gone", "status": 410},
    ],
)
def test_error_answers_of_many_servers_are_known(answer: dict[str, Any]) -> None:
    assert find_stand_in(json.dumps(answer).encode(), "data.jsonl") is not None
    assert find_stand_in(json.dumps(answer).encode(), "data.json") is None


def test_a_page_is_data_where_its_name_says_so() -> None:
    for name in ("a.html", "A.HTM", "feed.xml"):
        check_no_stand_in(PAGE, name)


# ------------------------------------------------------------------ retrieval


@pytest.mark.parametrize("kind", STAND_INS)
def test_retrieval_without_a_digest_refuses_it(
    kind: str, other_server: ScriptedServer, tmp_path: Path
) -> None:
    (tmp_path / "data").write_bytes(STAND_INS[kind])
    store = InMemoryStorageConnector()

    with pytest.raises(RetrievalError, match=f"sent an? .*{kind}"):
        retrieve([ResourceDefinition("sets/data.csv", str(tmp_path / "data"))], store)

    assert store.list_resources() == []


def test_retrieval_with_a_digest_takes_what_was_promised(tmp_path: Path) -> None:
    import hashlib

    (tmp_path / "data").write_bytes(POINTER)
    store = InMemoryStorageConnector()
    sha256 = hashlib.sha256(POINTER).hexdigest()

    retrieve([ResourceDefinition("a.csv", str(tmp_path / "data"), sha256=sha256)], store)

    assert store.list_resources() == ["a.csv"]
