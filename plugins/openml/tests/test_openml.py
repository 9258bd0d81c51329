"""Datasets of OpenML, of a server that answers as its API documents."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from catalogue_servers import describe, feature
from data_stack_openml import OpenMLCatalogue
from sizes import FULL
from web_server import Answer, ScriptedServer

import data_stack
from data_stack.exception import (
    CatalogueAccessError,
    CatalogueBusyError,
    CatalogueError,
    CatalogueSchemaError,
    CatalogueUnavailableError,
    DatasetNotFoundError,
    DataStackError,
    PreparationError,
    RetrievalError,
    RevisionNotFoundError,
)

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


MANY = """@RELATION many
@attribute day date 'dd.MM.yyyy'
@ATTRIBUTE id INTEGER
@ATTRIBUTE uid NUMERIC
@ATTRIBUTE huge NUMERIC
@ATTRIBUTE mixed REAL
@ATTRIBUTE small INTEGER
@ATTRIBUTE width REAL
@ATTRIBUTE kind {red, blue}
@DATA
01.12.2021, 9007199254740993, 12345678901234567890, 1, 0.5, 3, 1.5, red
?, ?, 12345678901234567891, 99999999999999999999999, 9007199254740993, ?, ?, ?
02.12.2021, -9007199254740993, ?, 2, 1e300, 4, 2.5, blue
"""


FLOWERS = [
    feature("id"),
    feature("petal length"),
    feature("colour", "red", "dark blue"),
    feature("class", "rose", "iris"),
]


@pytest.fixture
def server(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> ScriptedServer:
    monkeypatch.setenv("OPENML_SERVER", server.origin)
    monkeypatch.setenv("OPENML_APIKEY", "canary-key")
    monkeypatch.setenv("DATA_STACK_HOME", str(tmp_path / "home"))
    describe(server, 61, DENSE, FLOWERS)
    return server


def error(code: int) -> bytes:
    return json.dumps({"error": {"code": str(code), "message": "…"}}).encode()


def test_dense_rows_have_categories_a_target_and_missing_values(server: ScriptedServer) -> None:
    flowers: Any = data_stack.load("openml:61", split="all")

    assert flowers[0] == {"petal length": 1.5, "colour": "red", "class": 0}
    assert np.isnan(flowers[1]["petal length"])
    assert flowers[2]["colour"] is None
    assert flowers[2]["class"] == -1
    assert flowers.dataset_meta.class_names == ("rose", "iris")
    assert flowers.dataset_meta.target_pos == "class"
    assert data_stack.describe("openml:61").license == "CC0-1.0"


def test_a_recipe_gives_the_same_samples_without_the_key(server: ScriptedServer) -> None:
    flowers: Any = data_stack.load("openml:61", split="all")

    recipe = flowers.recipe()

    assert data_stack.from_recipe(recipe).fingerprint() == flowers.fingerprint()
    assert "canary" not in str(recipe)
    path_of_file = str(server.requests[-1].path)
    assert "canary" not in path_of_file


def test_sparse_rows_have_what_they_leave_out(server: ScriptedServer) -> None:
    features = [feature("a"), feature("b"), feature("class", "no", "yes")]
    describe(server, 7, SPARSE, features, format="Sparse_ARFF", row_id_attribute=None)

    rows: Any = data_stack.load("openml:7", split="all")

    assert list(rows) == [{"a": 2.0, "b": 0.0, "class": 0}, {"a": 0.0, "b": 3.0, "class": 1}]


# ------------------------------------------------------------------ names


@pytest.fixture
def versions(server: ScriptedServer) -> ScriptedServer:
    """A server with two versions of the dataset ``flowers``."""
    listed = [
        {"did": 61, "name": "flowers", "version": 2, "status": "active"},
        {"did": 5, "name": "flowers", "version": 1},
    ]
    answer = json.dumps({"data": {"dataset": listed}}).encode()
    path = "/json/data/list/data_name/flowers/limit"
    server.serve(f"{path}/100/status/active", answer)
    server.serve(f"{path}/9/status/active", answer)
    server.serve(f"{path}/100/status/active/data_version/9", error(372), status=412)
    return server


def test_a_name_without_a_version_is_the_newest_one(versions: ScriptedServer) -> None:
    assert data_stack.describe("openml:flowers").version == "2"


@pytest.mark.parametrize(
    ("name", "expected", "message"),
    [
        ("openml:flowers@9", RevisionNotFoundError, "it has the versions 2, 1"),
        ("openml:61@3", RevisionNotFoundError, "has version 2"),
        ("openml:nothing", DatasetNotFoundError, "search its pages"),
    ],
)
def test_an_unknown_name_or_version_is_an_error(
    versions: ScriptedServer, name: str, expected: type[Exception], message: str
) -> None:
    with pytest.raises(expected, match=message):
        data_stack.load(name, split="all")


def test_a_search_lists_the_versions_of_a_name(versions: ScriptedServer) -> None:
    entries = OpenMLCatalogue().search("flowers", 9)

    assert [entry.name for entry in entries] == ["openml:flowers@2", "openml:flowers@1"]


# ------------------------------------------------------------------ answers


@pytest.mark.parametrize(
    ("expected", "answer"),
    [
        (DatasetNotFoundError, Answer(error(111), status=412)),
        (CatalogueAccessError, Answer(error(112), status=412)),
        (CatalogueBusyError, Answer(status=429, headers={"Retry-After": "3600"})),
        (CatalogueUnavailableError, Answer(status=503)),
        (CatalogueError, Answer(b"<html>")),
        (CatalogueError, Answer(b'{"data_set_description": []}')),
    ],
)
def test_each_bad_answer_is_its_own_error(
    server: ScriptedServer, expected: type[Exception], answer: Answer
) -> None:
    server.url("/json/data/100", answer)
    server.serve("/json/data/features/100", b"{}")

    with pytest.raises(expected) as caught:
        data_stack.load("openml:100", split="all")

    assert "canary" not in str(caught.value)


def test_a_requested_pause_is_respected(server: ScriptedServer) -> None:
    pause = Answer(status=429, headers={"Retry-After": "0"})
    description = server._scripts["/json/data/61"][0]
    server.url("/json/data/61", pause, description)

    assert data_stack.describe("openml:61").version == "2"


def test_offline_openml_is_not_asked(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATA_STACK_OFFLINE", "1")

    with pytest.raises(CatalogueUnavailableError, match="OFFLINE"):
        data_stack.load("openml:62", split="all")
    assert server.requests == []


def test_a_file_with_another_digest_is_refused(server: ScriptedServer) -> None:
    describe(server, 8, DENSE, FLOWERS, md5_checksum="0" * 32)

    with pytest.raises(RetrievalError):
        data_stack.load("openml:8", split="all")


@pytest.mark.parametrize(
    ("arff", "features"),
    [
        pytest.param(DENSE, FLOWERS[:-1], id="other columns"),
        pytest.param(DENSE.replace("iris\n3", "tulip\n3"), FLOWERS, id="unlisted category"),
        pytest.param(DENSE.replace("@DATA", ""), FLOWERS, id="no data"),
        pytest.param(DENSE.replace("1.5", "1_5"), FLOWERS, id="no number"),
    ],
)
def test_a_file_that_is_not_as_described_is_refused(
    server: ScriptedServer, arff: str, features: list[Any]
) -> None:
    describe(server, 9, arff, features)

    with pytest.raises(PreparationError, match="ARFF") as caught:
        data_stack.load("openml:9", split="all")

    assert isinstance(caught.value.__cause__, CatalogueSchemaError)


# ------------------------------------------------------------------ types


MANY_FEATURES = [
    feature("day", data_type="date"),
    *(feature(name) for name in ("id", "uid", "huge", "mixed", "small", "width")),
    feature("kind", "red", "blue"),
]


def test_dates_are_texts_and_long_integers_are_exact(server: ScriptedServer) -> None:
    describe(
        server, 20, MANY, MANY_FEATURES, default_target_attribute="kind", row_id_attribute=None
    )

    first, second, third = data_stack.load("openml:20", split="all")

    assert (second["day"], third["day"]) == (None, "02.12.2021")
    assert (first["id"], second["id"], third["id"]) == (9007199254740993, None, -9007199254740993)
    assert (first["uid"], second["uid"], third["uid"]) == (
        12345678901234567890,
        12345678901234567891,
        None,
    )
    assert [row["huge"] for row in (first, second, third)] == [
        "1",
        "99999999999999999999999",
        "2",
    ]
    assert [row["mixed"] for row in (first, second, third)] == [
        "0.5",
        "9007199254740993",
        "1e300",
    ]
    assert isinstance(first["small"], np.float64)
    assert np.isnan(second["small"])
    assert (first["kind"], second["kind"]) == (0, -1)


@pytest.mark.parametrize("given", ["kind,width", ["kind", "width"]])
def test_several_targets_are_a_dict(server: ScriptedServer, given: Any) -> None:
    describe(server, 21, MANY, MANY_FEATURES, default_target_attribute=given, row_id_attribute=None)

    rows: Any = data_stack.load("openml:21", split="all")

    assert [row["targets"] for row in rows] == [
        {"kind": "red", "width": 1.5},
        {"kind": None, "width": pytest.approx(float("nan"), nan_ok=True)},
        {"kind": "blue", "width": 2.5},
    ]
    assert {"kind", "width"}.isdisjoint(rows[0])
    assert (rows.dataset_meta.target_pos, rows.dataset_meta.class_names) == ("targets", None)
    assert rows.read_column("targets")[2] == {"kind": "blue", "width": 2.5}


def test_texts_keep_their_characters(server: ScriptedServer) -> None:
    text = "@RELATION a\r\n@ATTRIBUTE s STRING\r\n@ATTRIBUTE n NUMERIC\r\n@DATA\r\n'a\u2028b\x85c\x0bd @data', 1\r\n\"?\", 2\r\n"
    features = [feature("s", data_type="string"), feature("n")]
    describe(server, 23, text, features, default_target_attribute=None, row_id_attribute=None)

    assert [row["s"] for row in data_stack.load("openml:23", split="all")] == [
        "a\u2028b\x85c\x0bd @data",
        "?",
    ]


@pytest.mark.parametrize(
    "url",
    [
        "file://{}",
        "{}",
        "FILE:{}",
        "package:json/tool.py",
        "hf://datasets/a/b@0/c",
        "ftp://localhost/x",
        "http://[::bad/x",
        "",
    ],
)
def test_a_description_does_not_lead_to_local_files(
    server: ScriptedServer, tmp_path: Path, url: str
) -> None:
    secret = tmp_path / "secret.arff"
    secret.write_text(DENSE)
    describe(server, 30, DENSE, FLOWERS, url=url.format(secret), md5_checksum=None)

    with pytest.raises((CatalogueError, RetrievalError)) as raised:
        data_stack.load("openml:30", split="all")

    # A path is one of the server, which has no such file.
    assert isinstance(raised.value, RetrievalError) == (url in ("{}", ""))
    assert not list((tmp_path / "home").rglob("*.arff"))


ODD: list[Any] = [None, "", "\ud800", ["x", 7], {"a": 1}]
MORE: list[Any] = [7, -1.5, True, "x", [], [None], [[]], {}, "x" * 10_000]


DESCRIBED = "id version url format licence citation md5_checksum description name default_target_attribute row_id_attribute"


@pytest.mark.parametrize("key", [*DESCRIBED.split(), "ignore_attribute"])
def test_odd_values_of_a_description_are_errors_of_ours(server: ScriptedServer, key: str) -> None:
    for number, value in enumerate([*ODD, *MORE] if FULL else ODD, 1000):
        describe(server, number, DENSE, FLOWERS, **{key: value})
        with contextlib.suppress(DataStackError):
            data_stack.describe(f"openml:{number}")


# ---------------------------------------------------------------------- encodings and comments

CITIES = (
    "@relation r\n@attribute city {pêche,pâche}\n@attribute y numeric\n@data\npêche,1\npâche,2\n"
)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_texts_are_read_in_the_encoding_of_the_file(server: ScriptedServer, encoding: str) -> None:
    features = [feature("city", "pêche", "pâche"), feature("y")]
    describe(server, 8, CITIES.encode(encoding), features, default_target_attribute="y")

    rows: Any = data_stack.load("openml:8", split="all")

    assert [row["city"] for row in rows] == ["pêche", "pâche"]


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252"])
def test_other_texts_than_utf_8_are_read_as_latin_1(server: ScriptedServer, encoding: str) -> None:
    mark = "–" if encoding == "cp1252" else "ê"
    text = CITIES.replace("ê", mark)
    features = [feature("city", f"p{mark}che", "pâche"), feature("y")]
    describe(server, 8, text.encode(encoding), features, default_target_attribute="y")

    with pytest.warns(UserWarning, match="is not in UTF-8; it is read as cp1252"):
        rows: Any = data_stack.load("openml:8", split="all")

    assert [row["city"] for row in rows] == [f"p{mark}che", "pâche"]


def test_letters_that_openml_does_not_list_are_refused(server: ScriptedServer) -> None:
    features = [feature("city", "pêche", "pâche"), feature("y")]
    text = CITIES.encode("cp850")  # other letters at these bytes
    describe(server, 8, text, features, default_target_attribute="y")

    with (
        pytest.warns(UserWarning, match="is not in UTF-8"),
        pytest.raises(DataStackError, match="could not prepare") as raised,
    ):
        data_stack.load("openml:8", split="all")
    assert "is none that OpenML lists" in str(raised.value.__cause__)


def test_comments_behind_declarations_are_left_out(server: ScriptedServer) -> None:
    text = """\ufeff@relation 'r % s' % a comment
@attribute a numeric % a comment
@attribute 'b % c' string
@attribute rate {10%, '20 % or more'} % {a, b}
@attribute y {-1,1} % {<=50K, >50K}
@data % a comment
1,'x % y','20 % or more',1
"""
    features = [feature("a"), feature("b % c"), feature("rate", "10%", "20 % or more")]
    features.append(feature("y", "-1", "1"))
    describe(server, 8, text, features, default_target_attribute="y")

    rows: Any = data_stack.load("openml:8", split="all")

    assert list(rows) == [{"a": 1.0, "b % c": "x % y", "rate": "20 % or more", "y": 1}]


def test_a_nominal_target_that_is_not_named_is_numbered(server: ScriptedServer) -> None:
    text = "@relation r\n@attribute a numeric\n@attribute b {x,y}\n@data\n1,y\n2,?\n"
    features = [feature("a"), feature("b", "x", "y")]
    describe(server, 8, text, features, default_target_attribute=None)

    rows: Any = data_stack.load("openml:8", split="all")

    assert rows.dataset_meta.class_names == ("x", "y")
    assert rows.dataset_meta.target_pos == "b"
    assert [row["b"] for row in rows] == [1, -1]
