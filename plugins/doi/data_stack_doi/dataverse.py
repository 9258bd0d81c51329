"""Records of a Dataverse, by its API: https://guides.dataverse.org/en/latest/api."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from data_stack_doi.records import Record, RecordFile, listed_file

_DATA_FILE: Final = {
    "id": int,
    "filesize": int,
    "md5?": str,
    "checksum?": {"type": str, "value": str},
    "originalFileName?": str,
    "originalFileSize?": int,
}
_FILE: Final = {
    "label": str,
    "directoryLabel?": str,
    "restricted?": bool,
    "dataFile": _DATA_FILE,
}
_CITATION: Final = {"fields": [{"typeName": str, "value": object}]}

#: The parts of an answer that are used, see data_stack.io.web.ask_json.
SHAPE: Final = {
    "data": {
        "latestVersion": {
            "metadataBlocks": {"citation": _CITATION},
            "license?": ({"name?": str}, str),
            "files": [_FILE],
        }
    }
}


def parse_record(answer: Mapping[str, Any], origin: str) -> Record:
    """Return the record of an answer.

    Args:
        answer: the answer.
        origin: scheme and host of the Dataverse, which serves the files.
    """
    version = answer["data"]["latestVersion"]
    files = []
    restricted = []
    for entry in version["files"]:
        file = _parse_file(entry, origin)
        if entry.get("restricted"):
            restricted.append(file.name)
        else:
            files.append(file)

    license_name = version.get("license")
    if isinstance(license_name, dict):
        license_name = license_name.get("name")
    return Record(_title_of(version), license_name, tuple(files), tuple(restricted))


def _parse_file(entry: Mapping[str, Any], origin: str) -> RecordFile:
    """Return a file of the listing.

    A Dataverse serves its own version of tables by default, but lists the digest of the author's
    file; so the author's file is what is asked for.
    """
    data_file = entry["dataFile"]
    folder = ""
    if entry.get("directoryLabel"):
        folder = f"{entry['directoryLabel']}/"
    listed_name = folder + entry["label"]

    url = f"{origin}/api/access/datafile/{data_file['id']}"
    original_name = data_file.get("originalFileName")
    if original_name:
        name = folder + original_name
        size = data_file.get("originalFileSize")
        url += "?format=original"
    else:
        name = listed_name
        size = data_file["filesize"]

    checksum = data_file.get("checksum") or {"type": "md5", "value": data_file.get("md5")}
    return listed_file(
        name,
        url,
        size,
        algorithm=checksum["type"],
        digest=checksum["value"],
        listed_as=listed_name,
    )


def _title_of(version: Mapping[str, Any]) -> str:
    """Return the title of a record; empty if it has none."""
    for field in version["metadataBlocks"]["citation"]["fields"]:
        if field["typeName"] == "title":
            return str(field["value"])
    return ""
