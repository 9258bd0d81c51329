"""What goes wrong between data_stack and the Hub, and what the errors say."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest
from counted_calls import count_calls
from data_stack_huggingface import HuggingFaceCatalogue
from data_stack_huggingface.layout import split_files
from hub_server import HubServer, Repo, parquet_of

import data_stack
from data_stack import CatalogueName
from data_stack.exception import (
    CatalogueAccessError,
    CatalogueBusyError,
    CatalogueError,
    CatalogueUnavailableError,
    ChecksumMismatchError,
    DatasetNotFoundError,
    RetrievalError,
    RevisionNotFoundError,
)
from data_stack.io.retriever import retrieve
from data_stack.io.storage_connectors import InMemoryStorageConnector
from data_stack.plugins import default_manager

NAME = "hf:team/numbers"


@pytest.fixture
def repo(hub: HubServer) -> Repo:
    """A dataset of a thousand numbers."""
    made = hub.repos["team/numbers"] = Repo()
    made.commit({"train.parquet": parquet_of({"x": list(range(1000))})})
    return made


def test_an_unknown_name_is_an_error(hub: HubServer, repo: Repo) -> None:
    with pytest.raises(DatasetNotFoundError, match=r"no dataset hf:tem/numbers, or it is private"):
        data_stack.load("hf:tem/numbers")
    with pytest.raises(DatasetNotFoundError, match="check the name"):
        data_stack.load("hf:a/b/c")
    with pytest.raises(RevisionNotFoundError, match="revision or file of hf:team/numbers"):
        data_stack.load(f"{NAME}@v9")


def test_search_lists_what_the_hub_finds(hub: HubServer, repo: Repo) -> None:
    from data_stack.repository.catalogues import search_catalogues

    repo.card = {"pretty_name": "Numbers", "license": "mit"}
    hub.repos["other/numbers-too"] = Repo(card={"license": "unknown"})

    entries = search_catalogues("numbers", "hf", limit=5)

    # huggingface_hub 0.26 does not know sizes.
    assert [(entry.name, entry.title, entry.license, entry.size or 1234) for entry in entries] == [
        (NAME, "Numbers", "mit", 1234),
        ("hf:other/numbers-too", "About other/numbers-too.", None, 1234),
    ]


def test_a_definition_without_a_size_is_an_error(hub: HubServer, repo: Repo) -> None:
    files = HuggingFaceCatalogue().list_files(CatalogueName("hf", "team/numbers"))
    definition = replace(files["train.parquet"], size=None, sha256=None)
    store = InMemoryStorageConnector()
    default_manager().register_retrievers([definition.source])

    with pytest.raises(RetrievalError, match="has no size"):
        retrieve([definition], store, progress=False)
    assert not store.has_resource(definition.identifier)


@pytest.mark.parametrize("lazy", [True, False])
def test_the_token_goes_to_the_hub_alone_and_stays_secret(
    hub: HubServer,
    repo: Repo,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    lazy: bool,
) -> None:
    caplog.set_level(logging.DEBUG, "data_stack")
    repo.token = "hf_secret"
    monkeypatch.setenv("HF_TOKEN", "hf_secret")

    train = data_stack.load(NAME, split="train", lazy=lazy)

    assert train[7] == {"x": 7}
    resolved = f"/datasets/team/numbers/resolve/{repo.refs['main']}/train.parquet"
    (elsewhere,) = {path for path in hub.tokens if path.startswith("/cdn/")}
    assert (hub.tokens[resolved], hub.tokens[elsewhere]) == ("Bearer hf_secret", None)
    hub.faults["/cdn"] = [(404, {}, b"hidden")] * 9
    data_stack.default_repository.cache_clear()
    with pytest.raises(CatalogueError) as error:
        data_stack.load(NAME, split="train", lazy=True)
    shown = f"{train!r} {train.recipe()} {error.value} {error.value!r} {caplog.text} {data_stack.default_repository()!r}"
    assert "hf_secret" not in shown
    assert "Signature" not in shown


@pytest.mark.parametrize("lazy", [True, False])
def test_pauses_and_failures_of_the_server_are_waited_for(
    hub: HubServer, repo: Repo, lazy: bool
) -> None:
    hub.faults["/api"] = [(429, {"Retry-After": "0"}, b"")]
    hub.faults["/cdn"] = [
        (503, {}, b""),
        (206, {"Content-Range": "bytes 0-1/2", "Content-Length": "0"}, b""),
    ][:1]

    assert data_stack.load(NAME, split="train", lazy=lazy)[999] == {"x": 999}


@pytest.mark.parametrize(
    ("status", "headers", "body", "kind", "message"),
    [
        (429, {"Retry-After": "3600"}, b"", CatalogueBusyError, "asked too often .*retry later"),
        (200, {}, b"[]", CatalogueError, "undocumented form .*a list, expected an object"),
        (200, {}, b"<html>", CatalogueError, "undocumented form .*not JSON"),
        (
            200,
            {},
            b'{"id": "a/b", "sha": "x", "siblings": [{}]}',
            CatalogueError,
            "entry 0 of 'siblings' .*no 'rfilename'",
        ),
        (403, {"X-Error-Code": "GatedRepo"}, b"", CatalogueAccessError, "hf auth login"),
        (500, {}, b"", CatalogueUnavailableError, "answers 500.*check the network"),
    ],
)
def test_answers_that_are_none(
    hub: HubServer,
    repo: Repo,
    status: int,
    headers: dict[str, str],
    body: bytes,
    kind: type[Exception],
    message: str,
) -> None:
    hub.faults["/api"] = [(status, headers, body)] * 9

    with pytest.raises(kind, match=message):
        data_stack.load(NAME)


@pytest.mark.parametrize(
    "location",
    ["http://[::bad/x", "file:///etc/passwd", "package:json/tool.py", "ftp://localhost/x"],
)
@pytest.mark.parametrize("lazy", [True, False])
def test_the_hub_does_not_lead_to_local_files(
    hub: HubServer, repo: Repo, location: str, lazy: bool
) -> None:
    resolved = f"/datasets/team/numbers/resolve/{repo.refs['main']}"
    hub.faults[resolved] = [(302, {"Location": location}, b"")] * 9

    with pytest.raises((CatalogueError, RetrievalError), match="leads to"):
        data_stack.load(NAME, split="train", lazy=lazy)


def test_bytes_that_are_not_those_of_the_listing_are_refused(hub: HubServer, repo: Repo) -> None:
    commit = repo.commits[repo.refs["main"]]
    data_stack.describe(f"{NAME}@{repo.refs['main']}")
    data = commit["train.parquet"]
    commit["train.parquet"] = data[:-1] + b"?"

    with pytest.raises(ChecksumMismatchError, match="ETag"):
        data_stack.load(f"{NAME}@{repo.refs['main']}", split="train", lazy=True)
    with pytest.raises(RetrievalError, match="ETag"):
        data_stack.load(f"{NAME}@{repo.refs['main']}", split="train")


def test_small_files_are_compared_with_their_blob(hub: HubServer) -> None:
    repo = hub.repos["team/small"] = Repo()
    data = parquet_of({"x": [1]}).replace(b"huggingface", b"HUGGINGFACE")
    assert len(data) < 1000
    repo.commit({"train.parquet": data})

    assert data_stack.load("hf:team/small", split="train", lazy=True)[0] == {"x": 1}
    path = f"/datasets/team/small/resolve/{repo.refs['main']}/train.parquet"
    factory = data_stack.default_repository().get_factory("hf:team/small")
    etag = factory.sources[0].source.rpartition("=")[2]  # type: ignore[attr-defined]
    wrong = (200, {"ETag": f'"{etag}"'}, data[:-1] + b"?")
    for lazy, kind in ((True, ChecksumMismatchError), (False, RetrievalError)):
        hub.faults[path] = [wrong] * 9
        with pytest.raises(kind, match="blob SHA-1"):
            data_stack.load("hf:team/small", split="train", lazy=lazy)


# ---------------------------------------------------------------------- cards


@pytest.mark.parametrize(
    "configs", ["x", [1], [{"data_files": [{"split": "train"}]}], [{"data_files": 3}], {"a": 1}]
)
def test_a_damaged_card_is_an_error(configs: Any) -> None:
    with pytest.raises(CatalogueError, match=r"configs in the card of hf:s are damaged"):
        split_files("s", {"configs": configs}, ["a.parquet"], None)


def test_hostile_patterns_of_a_card_end() -> None:
    paths = [f"{'a' * 100}/{'a' * 200}.parquet"]

    with pytest.raises(CatalogueError, match="no files match"):
        split_files("s", {"configs": [{"data_files": "**/" * 50 + "*a" * 50 + "*b"}]}, paths, None)


def test_n_patterns_of_a_card_cost_n() -> None:
    names = [f"data/x{number:05}.parquet" for number in range(5_000)]
    listed = [{"split": "train", "path": names}, {"split": "test", "path": "data/x0000*.parquet"}]
    card = {"configs": [{"config_name": "default", "data_files": listed}]}

    files_of_split = split_files("a/b", card, names, None)
    n_calls = count_calls(lambda: split_files("a/b", card, names, None))

    assert files_of_split == {"train": names, "test": names[:10]}
    assert n_calls < 100 * len(names)


def test_patterns_with_too_many_comparisons_are_refused() -> None:
    names = [f"x{number:05}.parquet" for number in range(3_000)]
    patterns = [f"*{number:05}.parquet" for number in range(7_000)]
    card = {"configs": [{"config_name": "default", "data_files": patterns}]}

    with pytest.raises(
        CatalogueError, match="more than 20,000,000 comparisons with names of files"
    ):
        split_files("a/b", card, names, None)


@pytest.mark.parametrize(
    ("pattern", "matching"),
    [
        ("data/**", ["data/a.parquet", "data/b/c.parquet"]),
        ("data/*", ["data/a.parquet"]),
        ("data**", ["dataset.parquet"]),
        ("d[a]ta/a*", ["data/a.parquet"]),
        ("./data/a.parquet", ["data/a.parquet"]),
        ("**/c.parquet", ["data/b/c.parquet"]),
    ],
)
def test_patterns_match_from_their_fixed_beginning(pattern: str, matching: list[str]) -> None:
    paths = ["data/.hidden.parquet", "data/a.parquet", "data/b/c.parquet", "dataset.parquet"]
    files = {"train": "dataset.parquet", "test": pattern}
    listed = [{"split": split, "path": path} for split, path in files.items()]
    card = {"configs": [{"config_name": "default", "data_files": listed}]}

    assert split_files("a/b", card, paths, None)["test"] == matching
