"""Records of figshare, by its API: https://docs.figshare.com."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from data_stack_doi.records import UNNAMED_FILES, Record, listed_file

_FILE: Final = {
    "name": str,
    "download_url": str,
    "size": int,
    "computed_md5?": str,
    "supplied_md5?": str,
}

#: The parts of an answer that are used, see data_stack.io.web.ask_json.
SHAPE: Final = {
    "title": str,
    "license?": {"name?": str},
    "is_embargoed?": bool,
    "is_confidential?": bool,
    "files": [_FILE],
}


def parse_record(answer: Mapping[str, Any]) -> Record:
    """Return the record of an answer."""
    files = []
    for entry in answer["files"]:
        digest = entry.get("computed_md5") or entry.get("supplied_md5")
        files.append(
            listed_file(
                entry["name"],
                entry["download_url"],
                entry["size"],
                algorithm="md5",
                digest=digest,
            )
        )

    is_restricted = answer.get("is_embargoed") or answer.get("is_confidential")
    restricted: tuple[str, ...] = ()
    if is_restricted and not files:
        restricted = UNNAMED_FILES
    license_name = (answer.get("license") or {}).get("name")
    return Record(answer["title"], license_name, tuple(files), restricted)
