"""Documents of many shapes: joins, JSON, lines, folders, nested fields, version 0.8."""

from __future__ import annotations

import gzip
import json
import logging
from pathlib import Path
from typing import Any

import mlcroissant
import pytest
from croissant_documents import (
    CSV,
    check_equal,
    document,
    fields,
    file_object,
    file_set,
    folder_files,
    from_file,
    parquet,
    publish,
    records_of,
    table,
    zipped,
)
from data_stack_croissant import row_reader, sources
from data_stack_croissant.license_of_document import spdx_expression_of
from web_server import ScriptedServer

import data_stack
from data_stack.exception import (
    ConfigError,
    DatasetFileCorruptError,
    MaliciousFilePathError,
    PreparationError,
)


def column(file: str, name: str, **more: Any) -> dict[str, Any]:
    return {"fileObject": {"@id": file}, "extract": {"column": name}, **more}


def test_an_inline_record_set_is_joined_as_by_mlcroissant(tmp_path: Path, store: Path) -> None:
    data = [{"people/code": "a", "people/name": "Ann"}, {"people/code": "b", "people/name": "Ben"}]
    people = {
        "field": [
            {"@type": "cr:Field", "@id": f"people/{name}", "name": name, "dataType": "sc:Text"}
            for name in ("code", "name")
        ]
    }
    rows = b"by,n\nb,1\na,2\nb,3\n"
    by = {
        "dataType": "sc:Text",
        "source": column("o.csv", "by"),
        "references": {"field": {"@id": "people/code"}},
    }
    name = {"dataType": "sc:Text", "source": {"field": {"@id": "people/name"}}}
    columns = fields("orders", {"fileObject": "o.csv"}, n="sc:Integer", by=by, name=name)
    described = document(
        [file_object("o.csv", rows, "text/csv")], people={**people, "data": data}, orders=columns
    )
    place = publish(tmp_path / "set", described, o__csv=rows)

    sets = data_stack.from_croissant(place, store)

    assert [sample["name"] for sample in sets["orders"]] == ["Ben", "Ann", "Ben"]
    check_equal(sets["orders"], records_of(place, "orders"))
    check_equal(sets["people"], records_of(place, "people"))


def test_a_join_that_multiplies_its_rows_is_an_error(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_reader, "_MAX_JOINED", 10)
    monkeypatch.setattr(row_reader, "_MAX_JOINED_PER_ROW", 2)
    many = b"k\n" + b"1\n" * 100
    key = {
        "dataType": "sc:Integer",
        "source": column("l.csv", "k"),
        "references": column("r.csv", "k"),
    }
    other = {"dataType": "sc:Integer", "source": column("r.csv", "k")}
    columns = fields("rows", {"fileObject": "l.csv"}, key=key, other=other)
    described = document(
        [file_object("l.csv", many, "text/csv"), file_object("r.csv", many, "text/csv")],
        rows=columns,
    )

    with pytest.raises(PreparationError, match="repeat too often"):
        data_stack.from_croissant(
            publish(tmp_path / "set", described, l__csv=many, r__csv=many), store
        )


def in_json(file: str, path: str, kind: str) -> dict[str, Any]:
    return {
        "dataType": kind,
        "source": {"fileObject": {"@id": file}, "extract": {"jsonPath": path}},
    }


def test_paths_into_json_are_read_as_mlcroissant_reads_them(tmp_path: Path, store: Path) -> None:
    boxes = [
        {"id": n, "bbox": [n, 2, 3.5, 4], "tags": {"self-harm": n % 2 == 0}, "area": 10 * n}
        for n in range(3)
    ]
    data = json.dumps({"info": {"id": 7}, "annotations": boxes}).encode()
    name = {
        "dataType": "sc:Text",
        "source": {"fileObject": {"@id": "a.json"}, "extract": {"fileProperty": "filename"}},
    }
    columns = fields(
        "rows", {"fileObject": "a.json"}, name=name,
        id=in_json("a.json", "$.annotations[*].id", "sc:Integer"),
        area=in_json("a.json", "$..area", "cr:Float32"),
        box=in_json("a.json", "annotations[*].bbox", "cr:BoundingBox"),
        harm=in_json("a.json", "$.annotations[*].tags.self-harm", "sc:Boolean"),
    )  # fmt: skip
    described = document([file_object("a.json", data, "application/json")], rows=columns)
    place = publish(tmp_path / "set", described, a__json=data)

    samples = data_stack.from_croissant(place, store)

    check_equal(samples, records_of(place, "rows"))
    assert samples[2]["box"].tolist() == [2, 2, 3.5, 4]


@pytest.mark.parametrize("path", ["$.a[?(@.b > 1)]", "$..a..b", "$.a[0:3]", "$.a" * 500])
def test_other_paths_are_an_error(tmp_path: Path, store: Path, path: str) -> None:
    columns = fields("rows", {"fileObject": "a.json"}, b=in_json("a.json", path, "sc:Integer"))
    described = document([file_object("a.json", b"{}", "application/json")], rows=columns)

    with pytest.raises(
        (ConfigError, DatasetFileCorruptError), match=r"JSONPath|pattern|Croissant document"
    ):
        data_stack.from_croissant(publish(tmp_path / "set", described, a__json=b"{}"), store)


def test_a_file_of_json_has_a_limit_of_size(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATA_STACK_MAX_REQUEST_BYTES", "100000")
    data = gzip.compress(b"[" + b"1," * 100_000 + b"1]")
    columns = fields(
        "rows", {"fileObject": "a.json.gz"}, n=in_json("a.json.gz", "$[*]", "sc:Integer")
    )
    described = document([file_object("a.json.gz", data, "application/json")], rows=columns)

    with pytest.raises(PreparationError, match=r"a\.json\.gz"):
        data_stack.from_croissant(publish(tmp_path / "set", described, a__json__gz=data), store)


def test_lines_of_files_of_a_folder_and_of_an_archive(tmp_path: Path, store: Path) -> None:
    members = {"a": b"one\ntwo, or\r\nthree", "b": "vier\n\nfünf".encode()}
    archive = zipped(**members)
    described = document(
        [
            folder_files("data/*.txt", "text/plain"), file_object("a.zip", archive, "application/zip"),
            file_set("zipped", "a.zip", "?", "text/plain"),
        ],
        **{
            name: fields(
                name, {"fileSet": each},
                line=from_file(each, "lines", "sc:Text"), number=from_file(each, "lineNumbers", "sc:Integer"),
            )
            for name, each in (("of_folder", "files"), ("of_zip", "zipped"))
        },
    )  # fmt: skip
    place = publish(tmp_path / "set", described, a__zip=archive)
    (place.parent / "data").mkdir()
    for name, data in members.items():
        (place.parent / "data" / f"{name}.txt").write_bytes(data)

    sets = data_stack.from_croissant(place, store)

    lines = ["one", "two, or", "three", "vier", "", "fünf"]
    for name in ("of_folder", "of_zip"):
        assert [sample["line"] for sample in sets[name]] == lines
        assert [sample["number"] for sample in sets[name]] == [0, 1, 2, 0, 1, 2]


def test_changed_files_of_a_folder_are_read_again(tmp_path: Path, store: Path) -> None:
    columns = fields(
        "rows", {"fileSet": "files"}, n="sc:Integer", split=from_file("files", "filename", "sc:Text", regex=r"^(\w+)\.parquet$"),
        path=from_file("files", "fullpath", "sc:Text"),
    )  # fmt: skip
    place = publish(
        tmp_path / "set",
        document([folder_files("data/*.parquet", "application/x-parquet")], rows=columns),
    )
    for name, start in (("train", 0), ("test", 5)):
        path = place.parent / "data" / "x" / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(parquet([{"n": start + n} for n in range(2)]))

    samples = data_stack.from_croissant(place, store)
    (place.parent / "data" / "x" / "train.parquet").write_bytes(parquet([{"n": 9}] * 3))
    changed = data_stack.from_croissant(place, store)

    assert [(sample["n"], sample["split"]) for sample in samples] == [
        (5, "test"),
        (6, "test"),
        (0, "train"),
        (1, "train"),
    ]
    assert [sample["n"] for sample in changed] == [5, 6, 9, 9, 9]
    check_equal(changed, records_of(place, "rows"))


@pytest.mark.parametrize("includes", ["../*.csv", "/etc/*", "x/../../*.csv", "link/*", "data/*"])
def test_files_outside_of_the_folder_are_refused(
    tmp_path: Path, store: Path, includes: str
) -> None:
    columns = fields("rows", {"fileSet": "files"}, id="sc:Integer")
    place = publish(tmp_path / "set", document([folder_files(includes, "text/csv")], rows=columns))
    (tmp_path / "secret.csv").write_bytes(CSV)
    (place.parent / "link").symlink_to(tmp_path)
    (place.parent / "data").mkdir()
    (place.parent / "data" / "secret.csv").symlink_to(tmp_path / "secret.csv")

    with pytest.raises(MaliciousFilePathError, match=r"below|outside of"):
        data_stack.from_croissant(place, store)


def test_a_folder_with_too_many_files_is_an_error(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "MAX_FILES", 2)
    columns = fields("rows", {"fileSet": "files"}, id="sc:Integer")
    many = publish(
        tmp_path / "many",
        document([folder_files("*.csv", "text/csv")], rows=columns),
        a__csv=CSV,
        b__csv=CSV,
        c__csv=CSV,
    )

    with pytest.raises(ConfigError, match="more than 2 files match"):
        data_stack.from_croissant(many, store)


def test_digests_that_are_placeholders_are_not_compared(
    tmp_path: Path, store: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = publish(
        tmp_path / "set",
        table(sha256="https://github.com/mlcommons/croissant/issues/80"),
        a__csv=CSV,
    )

    with caplog.at_level(logging.WARNING):
        samples = data_stack.from_croissant(place, store)

    assert len(samples) == 2
    assert "not a digest" in caplog.text


def test_fields_inside_of_fields_without_a_type_are_read(tmp_path: Path, store: Path) -> None:
    talk = [
        {"text": "hi", "head": {"lang": "en"}, "seen": [1, 2]},
        {"text": None, "head": {"lang": None}, "seen": []},
    ]
    data = parquet([{"talk": talk}, {"talk": []}])
    base = {"@type": "cr:Field", "dataType": "sc:Text"}

    def inner(name: str, of: str, *paths: str, **more: Any) -> dict[str, Any]:
        return {
            **base,
            "@id": f"rows/{name}",
            "name": name,
            "source": column("a.parquet", of, transform=[{"jsonPath": each} for each in paths]),
            **more,
        }

    def outer(name: str, *inside: Any, **more: Any) -> dict[str, Any]:
        return {
            "@type": "cr:Field",
            "@id": f"rows/{name}",
            "name": name,
            "subField": list(inside),
            **more,
        }

    columns = [
        outer(
            "talk", inner("talk/text", "talk", "text"), outer("talk/head", inner("talk/head/lang", "talk", "head", "lang")),
            inner("talk/seen", "talk", "seen", dataType="sc:Integer", repeated=True), repeated=True,
        ),
    ]  # fmt: skip
    described = document([file_object("a.parquet", data, "application/x-parquet")], rows=columns)

    samples = data_stack.from_croissant(
        publish(tmp_path / "set", described, a__parquet=data), store
    )

    assert samples[0]["talk.talk/text"] == ["hi", None]
    assert samples[0]["talk.talk/head.talk/head/lang"] == ["en", None]
    assert [list(each) for each in samples[0]["talk.talk/seen"]] == [[1, 2], []]
    assert samples[1]["talk.talk/text"] == []


def test_documents_of_version_0_8_are_read(tmp_path: Path, store: Path) -> None:
    context = {
        "@language": "en", "@vocab": "https://schema.org/", "sc": "https://schema.org/", "ml": "http://mlcommons.org/schema/",
        "column": "ml:column",
        "data": {"@id": "ml:data", "@type": "@json"}, "dataType": {"@id": "ml:dataType", "@type": "@vocab"},
        "extract": "ml:extract", "field": "ml:field", "recordSet": "ml:recordSet", "references": "ml:references",
        "source": "ml:source", "isEnumeration": "ml:isEnumeration",
    }  # fmt: skip
    text = {"@type": "ml:Field", "dataType": "sc:Text"}
    users = {
        "@type": "ml:RecordSet",
        "name": "users",
        "data": [{"mail": "a@x", "who": "Ann"}, {"mail": "b@x", "who": "Ben"}],
    }
    users["field"] = [{**text, "name": "mail"}, {**text, "name": "who"}]
    rows = b"by,n\nb@x,1\na@x,2\n"
    orders = [
        {
            **text,
            "name": "n",
            "dataType": "sc:Integer",
            "source": {"distribution": "o", "extract": {"column": "n"}},
        },
        {
            **text,
            "name": "by",
            "source": {"distribution": "o", "extract": {"column": "by"}},
            "references": {"field": "users/mail"},
        },
        {**text, "name": "who", "source": {"field": "users/who"}},
    ]
    file = {
        "@type": "sc:FileObject",
        "name": "o",
        "contentUrl": "o.csv",
        "encodingFormat": "text/csv",
        "sha256": "SHA256",
    }
    described = {
        "@context": context, "@type": "sc:Dataset", "name": "shop", "url": "https://example.org", "distribution": [file],
        "recordSet": [users, {"@type": "ml:RecordSet", "name": "orders", "field": orders}],
    }  # fmt: skip
    place = publish(tmp_path / "set", described, o__csv=rows)

    sets = data_stack.from_croissant(place, store)

    assert list(sets["orders"]) == [
        {"n": 1, "by": "b@x", "who": "Ben"},
        {"n": 2, "by": "a@x", "who": "Ann"},
    ]
    theirs = [
        {name: value.decode() if isinstance(value, bytes) else value for name, value in row.items()}
        for row in mlcroissant.Dataset(jsonld=place).records("orders")
    ]
    check_equal(sets["orders"], theirs)


@pytest.mark.parametrize("includes", ["a\0/*.csv", "/etc/*.csv", "../*.csv"])
def test_a_glob_outside_of_the_folder_is_refused(
    tmp_path: Path, store: Path, includes: str
) -> None:
    columns = fields("rows", {"fileSet": "files"}, id="sc:Integer")
    described = document([folder_files([includes, "*.csv"], "text/csv")], rows=columns)
    place = publish(tmp_path / "set", described, a__csv=CSV)

    with pytest.raises(MaliciousFilePathError, match="not below the folder"):
        data_stack.from_croissant(place, store)


def test_an_absolute_glob_into_the_folder_is_refused(tmp_path: Path, store: Path) -> None:
    folder = tmp_path / "set"
    columns = fields("rows", {"fileSet": "files"}, id="sc:Integer")
    globs = [f"{folder}/parts/*.csv", "*.csv"]
    described = document([folder_files(globs, "text/csv")], rows=columns)
    place = publish(folder, described, a__csv=CSV)

    with pytest.raises(MaliciousFilePathError, match="not below the folder"):
        data_stack.from_croissant(place, store)


def test_an_escaped_wildcard_names_a_file_of_a_web_server(
    server: ScriptedServer, store: Path
) -> None:
    columns = fields("rows", {"fileSet": "files"}, id="sc:Integer")
    described = document([folder_files(["a[[]1].csv"], "text/csv")], rows=columns)
    server.serve("/sets/a%5B1%5D.csv", CSV)
    place = server.serve("/sets/croissant.json", json.dumps(described).encode())

    samples = data_stack.from_croissant(place, store)

    assert [sample["id"] for sample in samples] == [1, 2]


def test_two_splits_of_one_name_are_an_error(tmp_path: Path, store: Path) -> None:
    listing: dict[str, Any] = {
        "@type": "cr:RecordSet",
        "@id": "splits",
        "name": "splits",
        "dataType": "cr:Split",
        "key": {"@id": "splits/name"},
        "field": [
            {"@type": "cr:Field", "@id": "splits/name", "name": "name", "dataType": "sc:Text"}
        ],
        "data": [{"splits/name": "b"}],
    }
    split_field = {
        "@type": "cr:Field",
        "@id": "a/split",
        "name": "split",
        "dataType": "sc:Text",
        "value": "b",
        "references": {"field": {"@id": "splits/name"}},
    }
    columns = [*fields("a", {"fileObject": "a.csv"}, id="sc:Integer"), split_field]
    columns_of_other = fields("a/b", {"fileObject": "a.csv"}, weight="sc:Float")
    described = document(
        [file_object("a.csv", CSV, "text/csv")], a=columns, **{"a/b": columns_of_other}
    )
    described["recordSet"].append(listing)

    with pytest.raises(ConfigError, match=r"another one is already called 'a/b'"):
        data_stack.from_croissant(publish(tmp_path / "set", described, a__csv=CSV), store)


def test_a_field_that_only_contains_fields_is_no_source(tmp_path: Path, store: Path) -> None:
    inner = fields("a", {"fileObject": "a.csv"}, id="sc:Integer")
    outer = {
        "@type": "cr:Field",
        "@id": "a/outer",
        "name": "outer",
        "dataType": "sc:Text",
        "subField": inner,
    }
    reader = {
        "@type": "cr:Field",
        "@id": "b/x",
        "name": "x",
        "dataType": "sc:Text",
        "source": {"field": {"@id": "a/outer"}},
    }
    described = document([file_object("a.csv", CSV, "text/csv")], a=[outer], b=[reader])

    with pytest.raises(ConfigError, match=r"'b/x'.*reads the field 'a/outer', which only contains"):
        data_stack.from_croissant(publish(tmp_path / "set", described, a__csv=CSV), store)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://creativecommons.org/publicdomain/zero/1.0/", "CC0-1.0"),
        ("https://creativecommons.org/licenses/by-nc-sa/4.0/", "CC-BY-NC-SA-4.0"),
        ("https://spdx.org/licenses/MIT.html", "MIT"),
        ("https://example.org/terms", "https://example.org/terms"),
    ],
)
def test_the_url_of_a_license_is_its_identifier(url: str, expected: str) -> None:
    assert spdx_expression_of([url]) == expected
    assert spdx_expression_of([url, "MIT"]) == f"{expected} AND MIT"


def test_a_document_without_a_license_has_none() -> None:
    assert spdx_expression_of(None) is None
