"""Datasets of OpenML, of a server that answers as its API documents."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import data_stack
from data_stack.exception import (
    CatalogueAccessError,
    CatalogueBusyError,
    CatalogueError,
    CatalogueSchemaError,
    CatalogueUnavailableError,
    DatasetNotFoundError,
    RetrievalError,
    RevisionNotFoundError,
)
from data_stack.testing.web_server import Answer, ScriptedServer

DENSE = """% flowers
@RELATION flowers
@ATTRIBUTE id NUMERIC
@ATTRIBUTE 'petal length' REAL
@ATTRIBUTE colour {red, 'dark blue'}
@ATTRIBUTE class {rose, iris}
@DATA
1, 1.5, red, rose
2, ?, 'dark blue', iris
3, 2.5, ?, ?
"""
SPARSE = """@RELATION words
@ATTRIBUTE a NUMERIC
@ATTRIBUTE b NUMERIC
@ATTRIBUTE class {no, yes}
@DATA
{0 2.0}
{1 3.0, 2 yes}
"""


def describe(server: ScriptedServer, number: int, text: str, features: list[dict[str, Any]], **changes: Any) -> None:
    url = server.serve(f"/data/{number}.arff", text.encode())
    description = {
        "id": str(number),
        "name": "flowers",
        "version": "2",
        "description": "Flowers.",
        "format": "ARFF",
        "licence": "CC0-1.0",
        "url": url,
        "md5_checksum": hashlib.md5(text.encode()).hexdigest(),
        "default_target_attribute": "class",
        "row_id_attribute": "id",
        **changes,
    }
    server.serve(f"/json/data/{number}", json.dumps({"data_set_description": description}).encode())
    server.serve(f"/json/data/features/{number}", json.dumps({"data_features": {"feature": features}}).encode())


def feature(name: str, *nominal: str) -> dict[str, Any]:
    return {
        "name": name,
        "data_type": "nominal" if nominal else "numeric",
        **({"nominal_value": list(nominal)} if nominal else {}),
    }


FLOWERS = [feature("id"), feature("petal length"), feature("colour", "red", "dark blue"), feature("class", "rose", "iris")]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ScriptedServer]:
    server = ScriptedServer()
    monkeypatch.setenv("OPENML_SERVER", server.origin)
    monkeypatch.setenv("OPENML_APIKEY", "canary-key")
    monkeypatch.setenv("DATA_STACK_HOME", str(tmp_path / "home"))
    describe(server, 61, DENSE, FLOWERS)
    yield server
    server.close()


def error(code: int) -> bytes:
    return json.dumps({"error": {"code": str(code), "message": "…"}}).encode()


def test_dense_rows_have_categories_a_target_and_missing_values(server: ScriptedServer) -> None:
    flowers: Any = data_stack.load("openml:61", split="all")
    assert flowers[0] == {"petal length": 1.5, "colour": "red", "class": 0}
    assert np.isnan(flowers[1]["petal length"])
    assert (flowers[2]["colour"], flowers[2]["class"]) == (None, -1)
    assert flowers.dataset_meta.class_names == ("rose", "iris")
    assert flowers.dataset_meta.target_pos == "class"
    assert data_stack.from_recipe(flowers.recipe()).fingerprint() == flowers.fingerprint()
    assert "canary" not in str(flowers.recipe()) + str(server.requests[-1].path)
    assert data_stack.describe("openml:61").license == "CC0-1.0"


def test_sparse_rows_have_what_they_leave_out(server: ScriptedServer) -> None:
    features = [feature("a"), feature("b"), feature("class", "no", "yes")]
    describe(server, 7, SPARSE, features, format="Sparse_ARFF", row_id_attribute=None)
    rows: Any = data_stack.load("openml:7", split="all")
    assert list(rows) == [{"a": 2.0, "b": 0.0, "class": 0}, {"a": 0.0, "b": 3.0, "class": 1}]


def test_names_have_versions(server: ScriptedServer) -> None:
    listed = [{"did": 61, "name": "flowers", "version": 2, "status": "active"}, {"did": 5, "name": "flowers", "version": 1}]
    server.serve("/json/data/list/data_name/flowers/limit/100/status/active", json.dumps({"data": {"dataset": listed}}).encode())
    server.serve("/json/data/list/data_name/flowers/limit/9/status/active", json.dumps({"data": {"dataset": listed}}).encode())
    missing = "/json/data/list/data_name/flowers/limit/100/status/active/data_version/9"
    server.serve(missing, error(372), status=412)
    assert data_stack.describe("openml:flowers").version == "2"
    with pytest.raises(RevisionNotFoundError, match="versions are 2, 1"):
        data_stack.load("openml:flowers@9", split="all")
    with pytest.raises(RevisionNotFoundError, match="is version 2"):
        data_stack.load("openml:61@3", split="all")
    with pytest.raises(DatasetNotFoundError, match="search its pages"):
        data_stack.load("openml:nothing", split="all")
    from data_stack_openml import OpenMLCatalogue

    assert [each.name for each in OpenMLCatalogue().search("flowers", 9)] == ["openml:flowers@2", "openml:flowers@1"]


def test_each_bad_answer_is_its_own_error(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[tuple[type[Exception], Answer]] = [
        (DatasetNotFoundError, Answer(error(111), status=412)),
        (CatalogueAccessError, Answer(error(112), status=412)),
        (CatalogueBusyError, Answer(status=429, headers={"Retry-After": "3600"})),
        (CatalogueUnavailableError, Answer(status=503)),
        (CatalogueError, Answer(b"<html>")),
        (CatalogueError, Answer(b'{"data_set_description": []}')),
    ]
    for number, (expected, answer) in enumerate(answers, 100):
        server.url(f"/json/data/{number}", answer)
        server.serve(f"/json/data/features/{number}", b"{}")
        with pytest.raises(expected) as raised:
            data_stack.load(f"openml:{number}", split="all")
        assert "canary" not in str(raised.value)
    server.url("/json/data/61", Answer(status=429, headers={"Retry-After": "0"}), server._scripts["/json/data/61"][0])
    assert data_stack.describe("openml:61").version == "2"
    monkeypatch.setenv("DATA_STACK_OFFLINE", "1")
    with pytest.raises(CatalogueUnavailableError, match="OFFLINE"):
        data_stack.load("openml:62", split="all")


def test_files_that_are_not_as_described_are_refused(server: ScriptedServer) -> None:
    describe(server, 8, DENSE, FLOWERS, md5_checksum="0" * 32)
    describe(server, 9, DENSE, FLOWERS[:-1])
    describe(server, 10, DENSE.replace("iris\n3", "tulip\n3"), FLOWERS)
    describe(server, 11, DENSE.replace("@DATA", ""), FLOWERS)
    with pytest.raises(RetrievalError):
        data_stack.load("openml:8", split="all")
    for number in (9, 10, 11):
        with pytest.raises(Exception, match="ARFF") as raised:
            data_stack.load(f"openml:{number}", split="all")
        assert isinstance(raised.value, CatalogueSchemaError) or isinstance(raised.value.__cause__, CatalogueSchemaError)
