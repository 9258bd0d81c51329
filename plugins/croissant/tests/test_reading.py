"""Croissant documents as samples: damaged, hostile, endless ones are errors."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from archives import tar_of
from croissant_documents import (
    CSV,
    check_equal,
    document,
    fields,
    file_object,
    file_set,
    from_file,
    parquet,
    png,
    publish,
    records_of,
    table,
    zipped,
)
from data_stack_croissant.globs import Globs
from data_stack_croissant.patterns import rewrite_texts
from web_server import ScriptedServer
from writing import bytes_of

import data_stack
from data_stack.exception import (
    ConfigError,
    DatasetFileCorruptError,
    DataStackError,
    MaliciousFilePathError,
    PreparationError,
    RetrievalError,
)


def test_a_table_of_a_web_server_is_read_once(server: ScriptedServer, store: Path) -> None:
    server.serve("/sets/a.csv", CSV)
    place = server.serve("/sets/croissant.json", json.dumps(table()).encode())

    rows = data_stack.from_croissant(place, store)
    data_stack.from_croissant(place, store)

    assert rows[1] == {
        "id": 2,
        "weight": 1.25,
        "code": "x8",
        "day": np.datetime64("2024-03-04", "us"),
    }
    assert rows[0]["code"] == "007"
    assert server.paths().count("/sets/a.csv") == 1
    assert "CC-BY-4.0" in str(rows.licenses())
    assert "Me" in rows.citation()
    assert list(data_stack.from_recipe(rows.take(1).recipe(), sources=[rows])) == [rows[0]]
    assert rows.fingerprint() == data_stack.from_croissant(place, store).fingerprint()


def test_parquet_is_read_as_mlcroissant_reads_it(tmp_path: Path, store: Path) -> None:
    rows = [
        {"id": 1, "tags": "a|b", "vector": [1.5, 2.0], "path": "x/cat-3.jpg"},
        {"id": 2, "tags": "c", "vector": [0.0, 4.0], "path": "y/dog-4.jpg"},
    ]
    data = parquet(rows)
    source = {"fileObject": {"@id": "a.parquet"}}
    columns = fields(
        "rows",
        {"fileObject": "a.parquet"},
        id="cr:Int64",
        vector={"dataType": "cr:Float64", "isArray": True, "arrayShape": "2"},
    )
    taken = {
        "source": {**source, "extract": {"column": "path"}, "transform": {"regex": r".*/(\w+)-.*"}}
    }
    columns += fields("rows", {"fileObject": "a.parquet"}, kind={"dataType": "sc:Text", **taken})
    described = document([file_object("a.parquet", data, "application/x-parquet")], rows=columns)
    place = publish(tmp_path / "set", described, a__parquet=data)

    samples = data_stack.from_croissant(place, store)

    check_equal(samples, records_of(place, "rows"))
    assert samples[1]["kind"] == "dog"
    assert samples[0]["vector"].dtype == np.float64


def test_pictures_of_an_archive_get_their_labels_from_their_names(
    tmp_path: Path, store: Path
) -> None:
    archive = zipped(train__cat_0=png(1), train__dog_1=png(2, 5), other=b"no picture")
    picture = from_file("pictures", "content", "sc:ImageObject")
    label = from_file("pictures", "filename", "sc:Text", regex=r"(\w+)_\d+\.png")
    described = document(
        [
            file_object("a.zip", archive, "application/zip"),
            file_set("pictures", "a.zip", "*/*.png", "image/png"),
        ],
        pictures_=fields("pictures_", {"fileSet": "pictures"}, picture=picture, label=label),
    )
    place = publish(tmp_path / "set", described, a__zip=archive)

    samples = data_stack.from_croissant(place, store)

    assert [sample["picture"].shape for sample in samples] == [(2, 3, 3), (2, 5, 3)]
    assert [sample["label"] for sample in samples] == ["cat", "dog"]


@pytest.mark.parametrize("kind", ["jsonl", "tsv", "csv"])
def test_tables_in_a_tar_are_read_one_behind_the_other(
    tmp_path: Path, store: Path, kind: str
) -> None:
    separator = {"tsv": "\t", "csv": ","}.get(kind)
    parts = [[{"n": 1, "on": True}], [{"n": 2, "on": False}, {"n": 3, "on": True}]]
    members = {}
    for number, rows in enumerate(parts):
        lines = [
            json.dumps(row) if separator is None else f"{row['n']}{separator}{row['on']}"
            for row in rows
        ]
        members[f"part/{number}.{kind}"] = "\n".join(
            [f"n{separator}on"] * (separator is not None) + lines
        ).encode()
    archive = tar_of(members)
    media = {
        "jsonl": "application/jsonlines",
        "tsv": "text/tab-separated-values",
        "csv": "text/csv",
    }[kind]
    described = document(
        [
            file_object("a.tgz", archive, "application/x-tar"),
            file_set("parts", "a.tgz", "part/*", media),
        ],
        rows=fields("rows", {"fileSet": "parts"}, n="sc:Integer", on="sc:Boolean"),
    )

    samples = data_stack.from_croissant(publish(tmp_path / "set", described, a__tgz=archive), store)

    assert list(samples) == [row for rows in parts for row in rows]


@pytest.mark.parametrize(
    "digest", [{"sha256": "0" * 64}, {"sha256": None, "md5": "0" * 32}, {"contentSize": "5 B"}]
)
def test_a_file_that_is_not_the_described_one_is_refused(
    tmp_path: Path, store: Path, digest: Any
) -> None:
    described = table(**digest)
    described["distribution"] = [
        {key: fact for key, fact in described["distribution"][0].items() if fact is not None}
    ]

    with pytest.raises(RetrievalError, match=r"a\.csv"):
        data_stack.from_croissant(publish(tmp_path / "set", described, a__csv=CSV), store)


@pytest.mark.parametrize(
    "url", ["../secret.csv", "/etc/passwd", "file:///etc/passwd", "package:json/tool.py", "a\0.csv"]
)
def test_a_document_does_not_name_files_outside_of_its_folder(
    tmp_path: Path, server: ScriptedServer, store: Path, url: str
) -> None:
    (tmp_path / "secret.csv").write_bytes(CSV)
    described = table(contentUrl=url)
    place = publish(tmp_path / "set", described)
    served = server.serve("/sets/croissant.json", json.dumps(described).encode())

    for document_place in (place, served):
        with pytest.raises((MaliciousFilePathError, RetrievalError)):
            data_stack.from_croissant(document_place, store)
    assert not list(store.rglob("*.csv"))


def test_a_document_leads_to_https_or_its_own_scheme(
    tmp_path: Path, server: ScriptedServer, store: Path
) -> None:
    described = json.dumps(table(contentUrl=server.serve("/elsewhere/a.csv", CSV)))
    (tmp_path / "croissant.json").write_text(described)

    with pytest.raises(MaliciousFilePathError, match="not encrypted"):
        data_stack.from_croissant(tmp_path / "croissant.json", store)
    assert server.requests == []
    assert data_stack.from_croissant(
        server.serve("/sets/croissant.json", described.encode()), store
    )
    for url in ("http://[::bad/x", "ftp://localhost/x", "hf://datasets/a/b@0/c"):
        served = server.serve("/sets/croissant.json", json.dumps(table(contentUrl=url)).encode())
        with pytest.raises(MaliciousFilePathError, match="leads to"):
            data_stack.from_croissant(served, store)


def test_credentials_of_a_url_are_not_shown(server: ScriptedServer, store: Path) -> None:
    place = server.serve(
        "/croissant.json", json.dumps(table(contentUrl="file:///etc/passwd")).encode()
    )

    with pytest.raises(MaliciousFilePathError) as caught:
        data_stack.from_croissant(place.replace("://", "://me:hidden@"), store)

    assert "croissant.json" in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_an_archive_does_not_unpack_outside_of_itself(tmp_path: Path, store: Path) -> None:
    archive = tar_of({"../evil.png": png(1)}, "w")
    picture = from_file("pictures", "content", "sc:ImageObject")
    described = document(
        [
            file_object("a.tar", archive, "application/x-tar"),
            file_set("pictures", "a.tar", "*", "image/png"),
        ],
        rows=fields("rows", {"fileSet": "pictures"}, picture=picture),
    )

    with pytest.raises(PreparationError, match="evil"):
        data_stack.from_croissant(publish(tmp_path / "set", described, a__tar=archive), store)


def evil_documents() -> dict[str, Any]:
    chain = [
        {"@id": f"n{i}", "a": {"@id": f"n{i + 1}"}, "b": {"x": {"@id": f"n{i + 1}"}}}
        for i in range(64)
    ]
    there = table()["@context"]
    deep: dict[str, Any] = {}
    for _ in range(100):
        deep = {"y": deep}
    return {
        "no JSON": b"{",
        "nothing but brackets": b"[" * 100_000,
        "a list": b"[]",
        "deep objects": {**table(), "x": deep},
        "very many objects": {**table(), "x": [{"y": n} for n in range(50_001)]},
        "a context elsewhere": {**table(), "@context": "http://localhost:9/context"},
        "a context elsewhere, deep": {
            **table(),
            "@context": {**there, "name": {"@id": "name", "@context": "http://localhost:9/"}},
        },
        "a circle": {
            **table(),
            "x": {"@id": "p", "y": {"@id": "q"}},
            "z": {"@id": "q", "y": {"@id": "p"}},
        },
        "references that double": {**table(), "x": chain},
        "two words of one name": json.dumps(table())
        .replace('"version"', '"name": "x", "version"')
        .encode(),
        "no record set": {key: value for key, value in table().items() if key != "recordSet"},
    }


@pytest.mark.parametrize("described", evil_documents().values(), ids=evil_documents())
def test_a_damaged_or_hostile_document_is_an_error(
    tmp_path: Path, store: Path, described: Any
) -> None:
    place = tmp_path / "croissant.json"
    place.write_bytes(described if isinstance(described, bytes) else json.dumps(described).encode())

    with pytest.raises((DatasetFileCorruptError, ConfigError), match="croissant"):
        data_stack.from_croissant(place, store)


OTHER = {"fileObject": {"@id": "b.csv"}, "extract": {"column": "id"}}


def test_a_field_that_is_not_read_is_named(tmp_path: Path, store: Path) -> None:
    lines = {"fileObject": {"@id": "a.csv"}, "extract": {"fileProperty": "lines"}}
    nested = {"dataType": "sc:Integer", "parentField": {"source": OTHER, "references": OTHER}}
    for facts, message in (
        (
            {"dataType": "sc:Text", "source": lines},
            "reads lines of a file, but other fields read the column",
        ),
        (nested, "nests records"),
    ):
        described = table()
        described["distribution"].append(file_object("b.csv", CSV, "text/csv"))
        described["recordSet"][0]["field"] += fields("rows", {"fileObject": "a.csv"}, odd=facts)

        with pytest.raises(ConfigError, match=rf"'rows/odd' of record set 'rows'.*({message})"):
            data_stack.from_croissant(publish(tmp_path / message[:5], described, a__csv=CSV), store)


def test_a_value_of_another_type_is_named_with_its_field(tmp_path: Path, store: Path) -> None:
    described = table()
    described["recordSet"][0]["field"][2]["dataType"] = "sc:Integer"

    with pytest.raises(DataStackError) as caught:
        data_stack.from_croissant(publish(tmp_path / "set", described, a__csv=CSV), store)

    assert "'x8'" in str(caught.value.__cause__)
    assert "'rows/code' of record set 'rows'" in str(caught.value.__cause__)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (pa.array([1, 2**63 + 1], pa.uint64()), "sc:Integer"),
        (pa.array([1, 300]), "cr:Int8"),
        (pa.array([0, -1]), "cr:UInt8"),
        (pa.array([1, 2**40 + 7]), "cr:Int32"),
        (pa.array([1.0, 300.7]), "cr:Int16"),
        (pa.array([1.0, float("inf")]), "sc:Integer"),
        (pa.array([1.0, 1e300]), "cr:Float32"),
    ],
)
def test_a_number_beyond_the_declared_type_is_named(
    tmp_path: Path, store: Path, values: Any, kind: str
) -> None:
    data = bytes_of(lambda file: pq.write_table(pa.table({"x": values}), file))
    described = document(
        [file_object("a.parquet", data, "application/x-parquet")],
        rows=fields("rows", {"fileObject": "a.parquet"}, x=kind),
    )

    with pytest.raises(DataStackError) as caught:
        data_stack.from_croissant(publish(tmp_path / "set", described, a__parquet=data), store)

    assert "'a.parquet' holds " in str(caught.value.__cause__)
    assert "in record 1, but field 'rows/x' of record set 'rows'" in str(caught.value.__cause__)


DATA = b"text\naaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!\n"


def described(**transform: str) -> dict[str, Any]:
    source = {"fileObject": {"@id": "a.csv"}, "extract": {"column": "text"}, "transform": transform}
    columns = fields(
        "rows", {"fileObject": "a.csv"}, text={"dataType": "sc:Text", "source": source}
    )
    return document([file_object("a.csv", DATA, "text/csv")], rows=columns)


def test_a_regular_expression_that_does_not_end_is_an_error() -> None:
    with pytest.raises(
        DatasetFileCorruptError, match=r"the regular expression '\(a\+\)\+\$' of here"
    ):
        rewrite_texts(["a" * 40 + "b"], "(a+)+$", "b", "here", max_seconds=1.0)


def test_a_malformed_regular_expression_is_named_with_its_field(
    tmp_path: Path, store: Path
) -> None:
    place = publish(tmp_path / "set", described(replace="(a/b"), a__csv=DATA)

    with pytest.raises(
        PreparationError,
        match=r"the regular expression '\(a' of field 'rows/text' of record set 'rows'",
    ):
        data_stack.from_croissant(place, store)


def test_a_long_regular_expression_is_refused_before_retrieving(
    tmp_path: Path, store: Path
) -> None:
    with pytest.raises(
        ConfigError,
        match=r"'rows/text' of record set 'rows' has a pattern of more than 1000 characters",
    ):
        data_stack.from_croissant(
            publish(tmp_path / "set", described(regex="a" * 1001), a__csv=DATA), store
        )


def test_texts_are_rewritten_as_by_re_in_several_runs() -> None:
    texts = [
        f"{word}-{number}.jpg" for number in range(20) for word in ("cat", "Über", "\ud800")
    ] + ["", "x"]

    firsts = rewrite_texts(texts, r"(?:(\d+)|(\w+))-.*", None, "here", run_length=50)
    replaced = rewrite_texts(texts, r"(\w+)-", r"<\1>", "here", run_length=50)

    assert firsts == {
        text: match[1] or match[2] if (match := re.match(r"(?:(\d+)|(\w+))-.*", text)) else text
        for text in texts
    }
    assert replaced == {text: re.sub(r"(\w+)-", r"<\1>", text) for text in texts}


@pytest.mark.parametrize("glob", ["*a" * 400 + "*b", "*[ab]" * 150 + "*b", "*?" * 400 + "*b"])
def test_globs_end(glob: str) -> None:
    assert not Globs([glob]).match("a" * 5000 + "c")
