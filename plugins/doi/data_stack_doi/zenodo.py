"""Records of Zenodo, by its API: https://developers.zenodo.org."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from data_stack_doi.records import UNNAMED_FILES, Record, listed_file

_FILE: Final = {"key": str, "links": {"self": str}, "size": int, "checksum?": str}

#: The parts of an answer that are used, see data_stack.io.web.ask_json.
SHAPE: Final = {
    "metadata": {"title": str, "license?": {"id?": str}, "access_right?": str},
    "access?": {"files?": str},
    "files?": [_FILE],
}

#: Values of ``access_right`` of records without public files.
_RESTRICTED: Final = ("restricted", "embargoed", "closed")


def parse_record(answer: Mapping[str, Any]) -> Record:
    """Return the record of an answer."""
    metadata = answer["metadata"]
    files = []
    for entry in answer.get("files") or ():
        # A checksum such as "md5:0cc1…".
        algorithm, _, digest = (entry.get("checksum") or "").partition(":")
        url = entry["links"]["self"]
        files.append(
            listed_file(entry["key"], url, entry["size"], algorithm=algorithm, digest=digest)
        )

    access = answer.get("access") or {}
    has_restricted_files = access.get("files") == "restricted"
    is_restricted = has_restricted_files or metadata.get("access_right") in _RESTRICTED
    restricted: tuple[str, ...] = ()
    if is_restricted and not files:
        restricted = UNNAMED_FILES
    license_name = (metadata.get("license") or {}).get("id")
    return Record(metadata["title"], license_name, tuple(files), restricted)
