"""Recognizes files that are stand-ins: something else in place of the data.

A stand-in is a pointer of Git LFS, a web page, or the error answer of a server. ``git clone``
without Git LFS, and raw links of GitHub, leave a text of three lines in place of a file. Portals
answer 200 with a page to log in. Many readers would take both for a table of a few rows.
"""

from __future__ import annotations

import re
from typing import Final

from data_stack.exception import DatasetFileCorruptError
from data_stack.util.untrusted_text import parse_json

#: So many bytes from the start of a file are enough.
HEAD_BYTES: Final = 1024
#: How much of a file is shown in a message.
_MAX_SHOWN_CHARACTERS: Final = 120
_MAX_SHOWN_BYTES: Final = 300

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
#: The specification fixes the first line; https://hawser.github.com is that of Git LFS before
#: version 1.
_LFS: Final = re.compile(rb"version https://(git-lfs|hawser)\.github\.com/spec/[^\s]{1,40}\r?\n")
_HTML: Final = re.compile(
    rb"(<\?xml[^>]*>|<!--.*?-->|\s)*<(!doctype\s+html|html|head)\b", re.DOTALL | re.I
)
#: An error answer of S3, Google Cloud Storage, Azure or WebDAV.
_XML_ERROR: Final = re.compile(rb"(<\?xml[^>]*>|\s)*<(\w+:)?error\b", re.DOTALL | re.I)

# The keys of an error answer of GitHub, the Hugging Face Hub, Zenodo, OpenML, Google, FastAPI, and
# of RFC 9457.
_ERROR_KEYS: Final = frozenset(("error", "errors"))
_TEXT_KEYS: Final = frozenset(("message", "msg", "detail", "details", "title", "reason"))
_CODE_KEYS: Final = frozenset(
    ("status", "code", "status_code", "statusCode", "documentation_url", "instance", "request_id")
)
_OTHER_KEYS: Final = frozenset(("type", "success"))
#: An answer that has only a text is an error if the text says so.
_ERROR_TEXT: Final = re.compile(
    r"not found|unauthori[sz]ed|forbidden|denied|rate limit|too many requests|credentials|"
    r"not logged in|log in|internal server error|unavailable",
    re.IGNORECASE,
)

#: Suffixes of files that may be pages by right.
_PAGE_SUFFIXES: Final = (".html", ".htm", ".xhtml", ".xml", ".svg", ".md", ".rss", ".atom")
#: Suffixes of files that may be JSON objects by right.
_JSON_SUFFIXES: Final = (".json", ".geojson", ".jsonld", ".ipynb")


def find_stand_in(head: bytes, name: str = "", size: int | None = None) -> str | None:
    """Return what a file is instead of the data, such as ``"an HTML page"``.

    Args:
        head: the first bytes of a file, at least :data:`HEAD_BYTES` of a longer one.
        name: the name of the file. A page is data if the name ends with ``.html``, and a JSON
            object is data if it ends with ``.json``.
        size: length of the whole file in bytes; -1 if it is unknown. None: ``head`` is the whole
            file if it is shorter than :data:`HEAD_BYTES`.

    Returns:
        None if nothing says that the file is not the data.
    """
    head = head.removeprefix(_BYTE_ORDER_MARK)
    lower_name = name.lower()
    if _LFS.match(head):
        return "a pointer of Git LFS"
    if not lower_name.endswith(_PAGE_SUFFIXES):
        if _HTML.match(head):
            return "an HTML page"
        if _XML_ERROR.match(head):
            return "an XML error answer of a server"

    # JSON can be parsed only if all of it is there.
    if size is None:
        is_whole = len(head) < HEAD_BYTES
    else:
        is_whole = 0 <= size <= len(head)
    if is_whole and not lower_name.endswith(_JSON_SUFFIXES) and _is_json_error(head):
        return "a JSON error answer of a server"
    return None


def check_no_stand_in(head: bytes, name: str, size: int | None = None) -> None:
    """Check that the first bytes of a file are not those of something in place of data.

    Args:
        head: as for :func:`find_stand_in`.
        name: the name of the file, also in the message.
        size: as for :func:`find_stand_in`.

    Raises:
        DatasetFileCorruptError: they are; the message says what the file is, and how to get the
            data.
    """
    kind = find_stand_in(head, name, size)
    if kind is not None:
        raise DatasetFileCorruptError(f"{name} is {kind}, not the data. {advice_for(kind, head)}")


def advice_for(kind: str, head: bytes) -> str:
    """Return how to get the data instead of what :func:`find_stand_in` returned as ``kind``."""
    if "LFS" in kind:
        return (
            "Fetch the file: run `git lfs pull` in the clone, "
            "or take the link that downloads, not the raw one"
        )
    text = " ".join(head[:_MAX_SHOWN_BYTES].decode("utf-8", "replace").split())
    shown = text[:_MAX_SHOWN_CHARACTERS]
    return f"Download it again by a link that needs no login; it begins with {shown!r}"


def _is_json_error(data: bytes) -> bool:
    """Return whether a file is the error answer of a server, by the keys of its JSON object."""
    if not data.lstrip().startswith(b"{"):
        return False
    try:
        answer = parse_json(data)
    except ValueError:
        return False
    if not isinstance(answer, dict):
        return False

    keys = answer.keys()
    if not keys <= _ERROR_KEYS | _TEXT_KEYS | _CODE_KEYS | _OTHER_KEYS:
        return False  # keys of data
    if keys & _ERROR_KEYS:
        return True
    text_keys = keys & _TEXT_KEYS
    if not text_keys:
        return False
    if keys & _CODE_KEYS:
        return True
    return any(_ERROR_TEXT.search(str(answer[key])) for key in text_keys)
