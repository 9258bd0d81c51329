"""Records of Zenodo, figshare and Dataverse, of a server that answers as their APIs document."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import data_stack
from data_stack.dataset.declarative import DatasetCard, DatasetFactory
from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.exception import (
    CatalogueAccessError,
    CatalogueBusyError,
    CatalogueError,
    CatalogueUnavailableError,
    DatasetNotFoundError,
    RetrievalError,
    RevisionNotFoundError,
)
from data_stack.formats import write_npy
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.testing.web_server import Answer, ScriptedServer

CSV = b"x,y\n1,a\n2,b\n"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ScriptedServer]:
    server = ScriptedServer()
    monkeypatch.setenv("DOI_RESOLVER", server.origin)
    monkeypatch.setenv("FIGSHARE_API", f"{server.origin}/figshare")
    monkeypatch.setenv("DATA_STACK_HOME", str(tmp_path / "home"))
    yield server
    server.close()


def lead(server: ScriptedServer, doi: str, page: str) -> None:
    server.url(f"/{doi}", Answer(status=302, headers={"Location": f"{server.origin}{page}"}))
    server.serve(page.partition("?")[0], b"<html>")


def zenodo(server: ScriptedServer, number: int, files: dict[str, bytes], **changes: Any) -> str:
    doi = f"10.5281/zenodo.{number}"
    lead(server, doi, f"/records/{number}")
    listed = [
        {
            "key": name,
            "size": len(data),
            "checksum": f"md5:{hashlib.md5(data).hexdigest()}",
            "links": {"self": server.serve(f"/api/records/{number}/files/{name}/content", data)},
            **changes,
        }
        for name, data in files.items()
    ]
    answer = {"metadata": {"title": "Tiny", "license": {"id": "cc-by-4.0"}}, "files": listed}
    server.serve(f"/api/records/{number}", json.dumps(answer).encode())
    return doi


def test_a_file_of_zenodo_is_a_dataset_and_a_source(server: ScriptedServer) -> None:
    doi = zenodo(server, 1, {"tiny.csv": CSV, "notes.txt": b"hello"})
    rows: Any = data_stack.load(f"doi:{doi}#tiny.csv", split="all")
    assert list(rows) == [{"x": 1, "y": "a"}, {"x": 2, "y": "b"}]
    assert data_stack.describe(f"doi:{doi}").license == "cc-by-4.0"
    exact = f"doi:{doi}#tiny.csv@{data_stack.describe(f'doi:{doi}#tiny.csv').version}"
    assert len(data_stack.load(exact, split="all")) == 2
    for name in ("notes.txt", "other.txt"):
        data_stack.default_repository().register("notes", dataset_of(f"doi:{doi}/{name}"), replace=True)
        if name == "notes.txt":
            assert data_stack.load("notes", split="all")[0] == ("hello",)
        else:
            with pytest.raises(RetrievalError, match=r"it has tiny\.csv, notes\.txt"):
                data_stack.load("notes", split="all")


def dataset_of(source: str) -> type[DatasetFactory]:
    class Notes(DatasetFactory):
        card = DatasetCard("notes", "1.0.0" if "notes" in source else "1.0.1")
        splits = ("all",)
        sources = (ResourceDefinition("raw/notes", source),)

        def open(self, split: str, prepared: Any) -> Any:
            with prepared["raw/notes"] as file:
                return SequenceDatasetIterator([[file.read().decode()]])

    return Notes


def test_files_of_one_format_are_splits(server: ScriptedServer, tmp_path: Path) -> None:
    doi = zenodo(server, 2, {"train.csv": CSV, "test.csv.gz": gzip.compress(CSV), "readme.md": b""})
    splits = data_stack.load(f"doi:{doi}")
    assert {name: len(split) for name, split in splits.items()} == {"train": 2, "test": 2}
    with open(tmp_path / "x.npy", "wb") as file:
        write_npy(file, np.arange(3))
    mixed = zenodo(server, 3, {"x.npy": (tmp_path / "x.npy").read_bytes(), "y.csv": CSV})
    with pytest.raises(CatalogueError, match=r"several formats.*x\.npy, y\.csv"):
        data_stack.load(f"doi:{mixed}")
    assert data_stack.load(f"doi:{mixed}#x.npy", split="all")[2][0] == 2
    with pytest.raises(CatalogueError, match="no file that data_stack recognises"):
        data_stack.load(f"doi:{zenodo(server, 4, {'a.docx': b''})}")


def test_figshare_and_dataverse(server: ScriptedServer) -> None:
    lead(server, "10.6084/m9.figshare.5", "/articles/dataset/title/5/2")
    url, md5 = server.serve("/files/5", CSV), hashlib.md5(CSV).hexdigest()
    article = {
        "title": "Five",
        "license": {"name": "CC0"},
        "files": [{"name": "f.csv", "size": len(CSV), "computed_md5": md5, "download_url": url}],
    }
    server.serve("/figshare/articles/5/versions/2", json.dumps(article).encode())
    assert len(data_stack.load("doi:10.6084/m9.figshare.5", split="all")) == 2
    lead(server, "10.7910/DVN/ABC", "/dataset.xhtml?persistentId=doi:10.7910/DVN/ABC")
    server.serve("/api/access/datafile/77", CSV)
    version = {
        "metadataBlocks": {"citation": {"fields": [{"typeName": "title", "value": "Verse"}]}},
        "files": [{"label": "v.csv", "dataFile": {"id": 77, "filesize": len(CSV), "md5": md5}}],
    }
    server.serve("/api/datasets/:persistentId/", json.dumps({"data": {"latestVersion": version}}).encode())
    assert len(data_stack.load("doi:10.7910/DVN/ABC", split="all")) == 2
    from data_stack_doi import DOICatalogue

    (entry,) = DOICatalogue().search("10.7910/DVN/ABC")
    assert (entry.title, entry.size) == ("Verse", len(CSV))
    assert DOICatalogue().search("words") == []


def test_each_bad_answer_is_its_own_error(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    doi = zenodo(server, 9, {"tiny.csv": CSV})
    answers: list[tuple[type[Exception], Answer]] = [
        (DatasetNotFoundError, Answer(status=410)),
        (CatalogueAccessError, Answer(status=403)),
        (CatalogueBusyError, Answer(status=429, headers={"Retry-After": "3600"})),
        (CatalogueUnavailableError, Answer(status=503)),
        (CatalogueError, Answer(b"<html>")),
        (CatalogueError, Answer(b'{"metadata": {"title": "t"}, "files": [{"key": "a.csv"}]}')),
    ]
    for expected, answer in answers:
        server.url("/api/records/9", answer)
        with pytest.raises(expected):
            data_stack.load(f"doi:{doi}")
    zenodo(server, 9, {"tiny.csv": CSV}, checksum=f"md5:{'0' * 32}")
    with pytest.raises(RetrievalError):
        data_stack.load(f"doi:{doi}")
    with pytest.raises(RevisionNotFoundError):
        data_stack.load(f"doi:{doi}@0123456789ab")
    for wrong in ("10.5281/zenodo.404", "no-doi"):
        with pytest.raises(DatasetNotFoundError):
            data_stack.load(f"doi:{wrong}")
    server.serve("/10.1000/other", b"<html>")
    with pytest.raises(CatalogueError, match="no Zenodo"):
        data_stack.load("doi:10.1000/other")
    monkeypatch.setenv("DATA_STACK_OFFLINE", "1")
    with pytest.raises(CatalogueUnavailableError, match="OFFLINE"):
        data_stack.load("doi:10.5281/zenodo.12")
