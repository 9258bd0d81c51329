"""Records of Zenodo, figshare and Dataverse, of a server that answers as their APIs document."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from catalogue_servers import lead, zenodo
from data_stack_doi.fetching import fetch
from web_server import Answer, ScriptedServer

import data_stack
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
from data_stack.io.retriever import retrieve
from data_stack.io.storage_connectors import FileStorageConnector, InMemoryStorageConnector
from data_stack.testing.storage_connector import content

CSV = b"x,y\n1,a\n2,b\n"


@pytest.fixture
def server(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> ScriptedServer:
    monkeypatch.setenv("DOI_RESOLVER", server.origin)
    monkeypatch.setenv("FIGSHARE_API", f"{server.origin}/figshare")
    monkeypatch.setenv("DATA_STACK_HOME", str(tmp_path / "home"))
    return server


def test_a_file_of_zenodo_is_a_dataset_and_a_source(server: ScriptedServer) -> None:
    doi = zenodo(server, 1, {"tiny.csv": CSV, "notes.txt": b"hello"})
    rows: Any = data_stack.load(f"doi:{doi}#tiny.csv", split="all")
    assert list(rows) == [{"x": 1, "y": "a"}, {"x": 2, "y": "b"}]
    assert data_stack.describe(f"doi:{doi}").license == "cc-by-4.0"
    exact = f"doi:{doi}#tiny.csv@{data_stack.describe(f'doi:{doi}#tiny.csv').version}"
    assert len(data_stack.load(exact, split="all")) == 2
    assert source_of(f"doi:{doi}/notes.txt") == "hello"
    with pytest.raises(RetrievalError, match=r"it has tiny\.csv, notes\.txt"):
        source_of(f"doi:{doi}/other.txt")


def test_files_of_one_format_are_splits(server: ScriptedServer, tmp_path: Path) -> None:
    doi = zenodo(
        server,
        2,
        {"train.csv": CSV, "test.csv.gz": gzip.compress(CSV), "readme.md": b"", "model.bin": b"x"},
    )
    splits = data_stack.load(f"doi:{doi}")
    assert {name: len(split) for name, split in splits.items()} == {"train": 2, "test": 2}
    with open(tmp_path / "x.npy", "wb") as file:
        write_npy(file, np.arange(3))
    mixed = zenodo(server, 3, {"x.npy": (tmp_path / "x.npy").read_bytes(), "y.csv": CSV})
    with pytest.raises(CatalogueError, match=r"several formats.*x\.npy, y\.csv"):
        data_stack.load(f"doi:{mixed}")
    assert data_stack.load(f"doi:{mixed}#x.npy", split="all")[2][0] == 2
    with pytest.raises(CatalogueError, match="no file with a name"):
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
    doi = dataverse(server, [{"label": "v.csv", "dataFile": data_file(server, 77, CSV)}])
    assert len(data_stack.load(f"doi:{doi}", split="all")) == 2
    from data_stack_doi import DOICatalogue

    (entry,) = DOICatalogue().search(doi)
    assert (entry.title, entry.size) == ("Verse", len(CSV))
    assert DOICatalogue().search("words") == []


def dataverse(server: ScriptedServer, files: list[dict[str, Any]], **changes: Any) -> str:
    doi = "10.7910/DVN/XYZ"
    lead(server, doi, f"/dataset.xhtml?persistentId=doi:{doi}")
    version = {
        "metadataBlocks": {"citation": {"fields": [{"typeName": "title", "value": "Verse"}]}},
        "files": files,
        **changes,
    }
    server.serve(
        "/api/datasets/:persistentId/", json.dumps({"data": {"latestVersion": version}}).encode()
    )
    return doi


def data_file(
    server: ScriptedServer, number: int, data: bytes, algorithm: str = "MD5", **more: Any
) -> dict[str, Any]:
    server.serve(f"/api/access/datafile/{number}", data)
    digest = hashlib.new(algorithm.replace("-", ""), data).hexdigest()
    return {
        "id": number,
        "filesize": len(data),
        "checksum": {"type": algorithm, "value": digest},
        **more,
    }


def test_files_of_one_name_in_two_folders_of_a_dataverse(server: ScriptedServer) -> None:
    other = b"x,y\n3,c\n"
    doi = dataverse(
        server,
        [
            {"label": "data.csv", "directoryLabel": "2020", "dataFile": data_file(server, 1, CSV)},
            {
                "label": "data.csv",
                "directoryLabel": "2021/spring",
                "dataFile": data_file(server, 2, other),
            },
        ],
    )

    splits = data_stack.load(f"doi:{doi}")

    assert {name: len(split) for name, split in splits.items()} == {
        "2020/data": 2,
        "2021/spring/data": 1,
    }
    assert data_stack.load(f"doi:{doi}#2021/spring/data.csv", split="all")[0] == {"x": 3, "y": "c"}
    assert source_of(f"doi:{doi}#2021/spring/data.csv") == other.decode()


def test_a_table_of_a_dataverse_is_its_authors_file(server: ScriptedServer) -> None:
    # The digest is that of the author's file; the size that of the Dataverse's version, unless it
    # says both.
    sizes: list[dict[str, Any]] = [{"originalFileSize": len(CSV)}, {}]
    for number, more in enumerate(sizes):
        facts = data_file(server, number, CSV, originalFileName="table.csv", **more) | {
            "filesize": 999
        }
        doi = dataverse(server, [{"label": "table.tab", "dataFile": facts}])
        for name in ("", "#table.csv", "#table.tab"):
            assert list(data_stack.load(f"doi:{doi}{name}", split="all")) == [
                {"x": 1, "y": "a"},
                {"x": 2, "y": "b"},
            ]
        assert source_of(f"doi:{doi}/table.tab") == CSV.decode()
    assert {seen.path for seen in server.requests if "datafile" in seen.path} == {
        "/api/access/datafile/0?format=original",
        "/api/access/datafile/1?format=original",
    }


def test_names_may_have_spaces_and_marks(server: ScriptedServer) -> None:
    name = "my data #1 @home 100%.csv"
    doi = dataverse(
        server,
        [
            {"label": name, "dataFile": data_file(server, 3, CSV)},
            {"label": "b.npy", "dataFile": data_file(server, 4, b"")},
        ],
    )

    with pytest.raises(CatalogueError, match=r"my data %231 %40home 100%25\.csv, b\.npy"):
        data_stack.load(f"doi:{doi}")
    rows: Any = data_stack.load(f"doi:{doi}#my data %231 %40home 100%25.csv", split="all")

    assert len(rows) == 2
    assert data_stack.from_recipe(rows.recipe())[1] == {"x": 2, "y": "b"}
    assert source_of(f"doi:{doi}/{name.replace('#', '%23')}") == CSV.decode()
    assert source_of(f"doi:{doi}#{name}") == CSV.decode()


@pytest.mark.parametrize("algorithm", ["SHA-1", "SHA-256", "SHA-512", "MD5"])
def test_each_digest_of_a_dataverse_is_compared(server: ScriptedServer, algorithm: str) -> None:
    doi = dataverse(
        server, [{"label": "a b.csv", "dataFile": data_file(server, 5, CSV, algorithm)}]
    )
    assert len(data_stack.load(f"doi:{doi}", split="all")) == 2
    server.serve("/api/access/datafile/5", CSV.replace(b"a", b"e"))

    for load in (
        lambda: data_stack.load(f"doi:{doi}", split="all", storage="memory://"),
        lambda: source_of(f"doi:{doi}/a b.csv"),
    ):
        with pytest.raises(RetrievalError, match=r"sends? |sent "):
            load()


def source_of(source: str) -> str:
    """The text of a source, retrieved for a dataset of its own."""
    store = InMemoryStorageConnector()
    retrieve(
        [ResourceDefinition("raw/notes", source)], store, progress=False, fetchers={"doi": fetch}
    )
    with store.get_resource("raw/notes") as file:
        return file.read().decode()


@pytest.mark.parametrize("algorithm", ["SHA-1", "MD5"])
@pytest.mark.parametrize("is_named_as_source", [True, False], ids=["source", "dataset"])
def test_a_download_is_resumed_by_the_next_command(
    server: ScriptedServer, tmp_path: Path, algorithm: str, is_named_as_source: bool
) -> None:
    table = CSV + b"3,c\n" * 100_000
    doi = dataverse(
        server, [{"label": "t.csv", "dataFile": data_file(server, 8, table, algorithm)}]
    )
    good: dict[str, Any] = {"body": table, "headers": {"ETag": '"one"'}, "ranges": True}
    url = server.script("/api/access/datafile/8", good | {"cut_at": 300_000}, {"status": 404}, good)
    store = FileStorageConnector(str(tmp_path / "store"))

    def run() -> None:
        if not is_named_as_source:
            data_stack.load(f"doi:{doi}", split="all", storage=store)
            return
        definition = ResourceDefinition("raw/t.csv", f"doi:{doi}/t.csv")
        retrieve([definition], store, progress=False, fetchers={"doi": fetch})

    with pytest.raises(RetrievalError):
        run()
    run()

    asked = [seen for seen in server.requests if server.origin + seen.path == url]
    assert 299_000 < int(asked[-1].headers["range"].removeprefix("bytes=")[:-1]) <= 300_000
    (identifier,) = (name for name in store.list_resources() if name.endswith(".csv"))
    assert content(store, identifier) == table
    assert not list(tmp_path.rglob(".~*"))


def test_nothing_of_a_file_without_a_digest_is_kept(server: ScriptedServer, tmp_path: Path) -> None:
    doi = zenodo(server, 3, {"t.bin": bytes(100_000)}, checksum=None)
    server.script(
        "/api/records/3/files/t.bin/content",
        {"body": bytes(100_000), "headers": {"ETag": '"one"'}, "cut_at": 50_000},
        {"status": 404},
    )
    store = FileStorageConnector(str(tmp_path / "store"))
    definition = ResourceDefinition("raw/t", f"doi:{doi}/t.bin")

    with pytest.raises(RetrievalError):
        retrieve([definition], store, progress=False, fetchers={"doi": fetch})

    assert not [path for path in (tmp_path / "store").rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    "changes",
    [
        {"metadata": {"title": "t", "access_right": "restricted"}},
        {"metadata": {"title": "t", "access_right": "embargoed"}, "files": []},
        {
            "metadata": {"title": "t"},
            "access": {"record": "public", "files": "restricted"},
            "files": [],
        },
    ],
)
def test_a_restricted_record_says_so(server: ScriptedServer, changes: dict[str, Any]) -> None:
    doi = zenodo(server, 40, {})
    server.serve("/api/records/40", json.dumps(changes).encode())

    with pytest.raises(CatalogueAccessError, match="restricted"):
        data_stack.load(f"doi:{doi}")
    lead(server, "10.6084/m9.figshare.6", "/articles/dataset/title/6")
    server.serve(
        "/figshare/articles/6",
        json.dumps({"title": "t", "files": [], "is_embargoed": True}).encode(),
    )
    with pytest.raises(CatalogueAccessError, match="restricted"):
        data_stack.load("doi:10.6084/m9.figshare.6")


@pytest.mark.parametrize(
    "url",
    [
        "file://{}",
        "{}",
        "package:json/tool.py",
        "doi:10.1/2/x",
        "ftp://localhost/x",
        "http://[::bad/x",
    ],
)
def test_a_record_does_not_lead_to_local_files(
    server: ScriptedServer, tmp_path: Path, url: str
) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_bytes(CSV)
    doi = zenodo(server, 50, {"tiny.csv": CSV}, links={"self": url.format(secret)}, checksum=None)

    with pytest.raises((CatalogueError, RetrievalError)) as raised:
        data_stack.load(f"doi:{doi}", split="all")

    assert isinstance(raised.value, RetrievalError) == (url == "{}")  # a path is one of the server
    assert not list((tmp_path / "home").rglob("*.csv"))


def test_a_page_that_refuses_programs_is_not_needed(server: ScriptedServer) -> None:
    doi = zenodo(server, 90, {"tiny.csv": CSV})
    server.url("/records/90", Answer(status=503))

    assert len(data_stack.load(f"doi:{doi}", split="all")) == 2


def test_each_bad_answer_is_its_own_error(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    with pytest.raises(CatalogueError, match="expected Zenodo"):
        data_stack.load("doi:10.1000/other")
    monkeypatch.setenv("DATA_STACK_OFFLINE", "1")
    with pytest.raises(CatalogueUnavailableError, match="OFFLINE"):
        data_stack.load("doi:10.5281/zenodo.12")
