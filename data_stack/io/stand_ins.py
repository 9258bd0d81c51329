"""Recognizes what lies in place of data: a pointer of Git LFS, a web page, the error answer of a server.

``git clone`` without Git LFS, and raw links of GitHub, leave a text of three lines where a file should be. Portals
answer 200 with a page to log in. Many readers take both for a table of a few rows.
"""

from __future__ import annotations

import re
from typing import Final

from data_stack.exception import DatasetFileCorruptError
from data_stack.util.untrusted_text import parse_json

#: So many bytes from the start of a file are enough.
HEAD_BYTES: Final = 1024

#: The specification fixes the first line; https://hawser.github.com is that of Git LFS before version 1.
_LFS: Final = re.compile(rb"version https://(git-lfs|hawser)\.github\.com/spec/[^\s]{1,40}\r?\n")
_HTML: Final = re.compile(
    rb"(<\?xml[^>]*>|<!--.*?-->|\s)*<(!doctype\s+html|html|head)\b", re.DOTALL | re.I
)
#: Of S3, Google Cloud Storage, Azure and WebDAV.
_XML_ERROR: Final = re.compile(rb"(<\?xml[^>]*>|\s)*<(\w+:)?error\b", re.DOTALL | re.I)
#: The keys of an error answer of GitHub, the Hugging Face Hub, Zenodo, OpenML, Google, FastAPI, and of RFC 9457.
_ERROR: Final = frozenset(("error", "errors"))
_TEXTS: Final = frozenset(("message", "msg", "detail", "details", "title", "reason"))
_CODES: Final = frozenset(
    ("status", "code", "status_code", "statusCode", "documentation_url", "instance", "request_id")
)
_OTHERS: Final = frozenset(("type", "success"))
#: An answer of one text only is an error if the text says so.
_SAYS_ERROR: Final = re.compile(
    r"not found|unauthori[sz]ed|forbidden|denied|rate limit|too many requests|credentials|not logged in|"
    r"log in|internal server error|unavailable",
    re.IGNORECASE,
)

#: Suffixes of files that may be pages, or JSON objects, by right.
_PAGES: Final = (".html", ".htm", ".xhtml", ".xml", ".svg", ".md", ".rss", ".atom")
_JSON: Final = (".json", ".geojson", ".jsonld", ".ipynb")


def stand_in(head: bytes, name: str = "", size: int | None = None) -> str | None:
    """What lies in place of data, as a noun with its article; None if nothing says that it is not the data.

    Args:
        head: the first bytes of a file, at least :data:`HEAD_BYTES` of a longer one.
        name: the name of the file; pages and JSON objects are data by right if it ends so.
        size: the size of the file; -1 if it is unknown; None if ``head`` is all of a file shorter than that.
    """
    head = head.removeprefix(b"\xef\xbb\xbf")  # the mark of UTF-8
    if _LFS.match(head):
        return "a pointer of Git LFS"
    lower = name.lower()
    if not lower.endswith(_PAGES):
        if _HTML.match(head):
            return "an HTML page"
        if _XML_ERROR.match(head):
            return "an XML error answer of a server"
    is_whole = len(head) < HEAD_BYTES if size is None else len(head) >= size >= 0
    if is_whole and not lower.endswith(_JSON) and _is_json_error(head):
        return "a JSON error answer of a server"
    return None


def check_no_stand_in(head: bytes, name: str, size: int | None = None) -> None:
    """Check that the first bytes of a file are not those of something in place of data.

    Args:
        head: as for :func:`stand_in`.
        name: the name of the file, also in the message.
        size: as for :func:`stand_in`.

    Raises:
        DatasetFileCorruptError: they are; the message says what the file is, and how to get the data.
    """
    kind = stand_in(head, name, size)
    if kind is not None:
        raise DatasetFileCorruptError(f"{name} is {kind}, not the data. {advice_for(kind, head)}")


def advice_for(kind: str, head: bytes) -> str:
    """How to get the data instead of what :func:`stand_in` found."""
    if "LFS" in kind:
        return "Fetch the file: run `git lfs pull` in the clone, or take the link that downloads, not the raw one"
    shown = " ".join(head[:300].decode("utf-8", "replace").split())[:120]
    return f"Download it again by a link that needs no login; it begins with {shown!r}"


def _is_json_error(data: bytes) -> bool:
    if not data.lstrip().startswith(b"{"):
        return False
    try:
        answer = parse_json(data)
    except ValueError:
        return False
    if not isinstance(answer, dict) or not answer.keys() <= _ERROR | _TEXTS | _CODES | _OTHERS:
        return False
    texts = _TEXTS.intersection(answer)
    if not _ERROR.isdisjoint(answer):
        return True
    if not texts:
        return False
    says_error = any(_SAYS_ERROR.search(str(answer[name])) for name in texts)
    return says_error or not _CODES.isdisjoint(answer)
