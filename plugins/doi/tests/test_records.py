"""What repositories answer, parsed as pure functions of plain data."""

from __future__ import annotations

from typing import Any

import pytest
from data_stack_doi import dataverse, figshare, zenodo
from data_stack_doi.records import Record, RecordFile, listed_file

from data_stack.exception import CatalogueAccessError

MD5 = "0cc175b9c0f1b6a831c399e269772661"


@pytest.mark.parametrize(
    ("algorithm", "digest", "expected"),
    [
        ("MD5", MD5.upper(), ("md5", MD5)),
        ("SHA-1", "a" * 40, ("sha1", "a" * 40)),
        ("SHA-256", MD5, (None, None)),
        ("md5", "z" * 32, (None, None)),
        ("crc32", "a" * 8, (None, None)),
        ("md5", None, (None, None)),
    ],
)
def test_a_digest_is_that_of_its_algorithm_or_none(
    algorithm: str, digest: str | None, expected: tuple[str | None, str | None]
) -> None:
    file = listed_file("a.csv", "https://host/a", 3, algorithm=algorithm, digest=digest)

    assert (file.algorithm, file.digest) == expected


def test_a_restricted_file_is_no_unknown_file() -> None:
    file = RecordFile("a b.csv", "https://host/a", 3, None, None, "a b.tab")
    record = Record("t", None, (file,), ("secret.csv",))

    assert record.find("a%20b.csv") is file
    assert record.find("a b.tab") is file
    assert record.find("c.csv") is None
    with pytest.raises(CatalogueAccessError, match="ask its authors"):
        record.find("secret.csv")


def test_a_record_of_zenodo() -> None:
    entry = {"key": "a.csv", "links": {"self": "/a"}, "size": 3, "checksum": f"md5:{MD5}"}
    metadata = {"title": "T", "license": {"id": "cc-by-4.0"}}

    record = zenodo.parse_record({"metadata": metadata, "files": [entry]})
    restricted = zenodo.parse_record({"metadata": {"title": "T", "access_right": "closed"}})

    assert record == Record("T", "cc-by-4.0", (RecordFile("a.csv", "/a", 3, "md5", MD5),))
    assert restricted == Record("T", None, (), ("all",))


def test_a_record_of_figshare() -> None:
    entry = {"name": "a.csv", "download_url": "/a", "size": 3, "supplied_md5": MD5}

    record = figshare.parse_record({"title": "T", "files": [entry]})
    restricted = figshare.parse_record({"title": "T", "files": [], "is_embargoed": True})

    assert record == Record("T", None, (RecordFile("a.csv", "/a", 3, "md5", MD5),))
    assert restricted.restricted == ("all",)


def test_a_record_of_a_dataverse_has_the_files_of_authors() -> None:
    table = {"id": 1, "filesize": 9, "md5": MD5, "originalFileName": "t.csv"}
    listed: list[dict[str, Any]] = [
        {"label": "t.tab", "directoryLabel": "2020", "dataFile": table},
        {"label": "b.csv", "restricted": True, "dataFile": {"id": 2, "filesize": 5}},
    ]
    title = {"typeName": "title", "value": "T"}
    version = {"metadataBlocks": {"citation": {"fields": [title]}}, "files": listed}
    version["license"] = {"name": "CC0"}

    record = dataverse.parse_record({"data": {"latestVersion": version}}, "https://host")

    url = "https://host/api/access/datafile/1?format=original"
    file = RecordFile("2020/t.csv", url, None, "md5", MD5, "2020/t.tab")
    assert record == Record("T", "CC0", (file,), ("b.csv",))
