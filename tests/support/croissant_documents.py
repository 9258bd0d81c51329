"""Croissant documents of a few files, and their records as MLCommons' own library reads them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import mlcroissant
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from archives import zip_of
from data_stack_croissant.vocabulary import CONFORMS_TO, CONTEXT
from PIL import Image
from writing import bytes_of, image_bytes

CSV = b"id,weight,code,day\n1,0.5,007,2024-01-02\n2,1.25,x8,2024-03-04\n"


def file_object(name: str, data: bytes, kind: str, **more: Any) -> dict[str, Any]:
    facts = {
        "contentUrl": name,
        "contentSize": f"{len(data)} B",
        "sha256": hashlib.sha256(data).hexdigest(),
        **more,
    }
    return {"@type": "cr:FileObject", "@id": name, "name": name, "encodingFormat": kind, **facts}


def file_set(name: str, container: str, includes: str, kind: str) -> dict[str, Any]:
    within = {"containedIn": {"@id": container}, "includes": includes, "encodingFormat": kind}
    return {"@type": "cr:FileSet", "@id": name, "name": name, **within}


def folder_files(includes: Any, kind: str, **more: Any) -> dict[str, Any]:
    """A FileSet that is in nothing."""
    return {
        "@type": "cr:FileSet",
        "@id": "files",
        "name": "files",
        "includes": includes,
        "encodingFormat": kind,
        **more,
    }


def fields(record_set: str, source: dict[str, str], **columns: Any) -> list[dict[str, Any]]:
    """Fields by name, each a type, or its facts; they take the columns of their names."""
    made = []
    for name, facts in columns.items():
        about = facts if isinstance(facts, dict) else {"dataType": facts}
        taken = {
            "source": {
                next(iter(source)): {"@id": next(iter(source.values()))},
                "extract": {"column": name},
            }
        }
        made.append(
            {"@type": "cr:Field", "@id": f"{record_set}/{name}", "name": name, **taken, **about}
        )
    return made


def from_file(source: str, what: str, kind: str, **transform: str) -> dict[str, Any]:
    """A field of a property of the files of a set."""
    taken: dict[str, Any] = {"fileSet": {"@id": source}, "extract": {"fileProperty": what}}
    return {
        "dataType": kind,
        "source": {**taken, **({"transform": transform} if transform else {})},
    }


def document(files: list[Any], **record_sets: Any) -> dict[str, Any]:
    made = [
        {
            "@type": "cr:RecordSet",
            "@id": name,
            "name": name,
            **(facts if isinstance(facts, dict) else {"field": facts}),
        }
        for name, facts in record_sets.items()
    ]
    about = {
        "name": "things",
        "version": "1.0.0",
        "citeAs": "Me",
        "license": "https://creativecommons.org/licenses/by/4.0/",
    }
    head = {
        "@context": json.loads(json.dumps(CONTEXT)),
        "@type": "sc:Dataset",
        "conformsTo": CONFORMS_TO,
        **about,
    }
    return {**head, "distribution": files, "recordSet": made}


def table(**more: Any) -> dict[str, Any]:
    """A document of one CSV file."""
    columns = fields(
        "rows",
        {"fileObject": "a.csv"},
        id="sc:Integer",
        weight="cr:Float32",
        code="sc:Text",
        day="sc:Date",
    )
    return document([file_object("a.csv", CSV, "text/csv", **more)], rows=columns)


def publish(folder: Path, described: dict[str, Any], **files: bytes) -> Path:
    folder.mkdir(exist_ok=True)
    for name, data in files.items():
        (folder / name.replace("__", ".")).write_bytes(data)
    (folder / "croissant.json").write_text(json.dumps(described))
    return folder / "croissant.json"


def records_of(place: Path, record_set: str) -> list[dict[str, Any]]:
    """The rows as mlcroissant reads them, by the names of their columns."""

    def plain(value: Any) -> Any:
        if isinstance(value, Image.Image):
            return np.asarray(value)
        return value.decode() if isinstance(value, bytes) else value

    rows = mlcroissant.Dataset(jsonld=place).records(record_set)
    return [{name.partition("/")[2]: plain(value) for name, value in row.items()} for row in rows]


def check_equal(samples: Any, records: list[dict[str, Any]]) -> None:
    assert len(samples) == len(records)
    for sample, record in zip(samples, records, strict=True):
        assert sample.keys() == record.keys()
        for name, value in sample.items():
            np.testing.assert_array_equal(value, record[name])


def parquet(rows: list[dict[str, Any]]) -> bytes:
    return bytes_of(lambda file: pq.write_table(pa.Table.from_pylist(rows), file))


def png(shade: int, size: int = 3) -> bytes:
    return image_bytes(Image.new("RGB", (size, 2), (shade, 1, 2)))


def zipped(**members: bytes) -> bytes:
    return zip_of(
        {
            name.replace("__", "/") + (".png" if data[1:4] == b"PNG" else ""): data
            for name, data in members.items()
        }
    )
