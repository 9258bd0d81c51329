"""Parses JSON and TOML from untrusted sources, with limits of size and depth."""

from __future__ import annotations

import json
import re
import sys
from typing import Any, Final

import numpy as np

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

#: More than any dataset needs (the manifest of 100,000 resources has 15 MB), and small enough to parse without harm.
MAX_BYTES: Final = 64 << 20
#: A level of plain data takes up to three brackets, and plain data have up to 100 levels.
MAX_JSON_DEPTH: Final = 400
#: Tables, arrays, and the parts of a dotted key, for which a parser takes quadratic time and memory.
MAX_TOML_DEPTH: Final = 100

_ALL_BUT_BRACKETS = bytes(set(range(256)) - set(b'[]{}"'))
_OPENING = 2  # the bit that tells "[" and "{" from "]" and "}"

_TOML_TOKEN = re.compile(r"""\"{3}|'{3}|["'#\[\]{}.,=\n]""")
_TOML_STRING_ENDS = {
    '"""': re.compile(r'\\.|"{3,5}', re.DOTALL),
    "'''": re.compile(r"'{3,5}"),
    '"': re.compile(r'\\.|["\n]'),
    "'": re.compile(r"['\n]"),
    "#": re.compile(r"\n"),
}


def parse_json(data: str | bytes | bytearray | memoryview, *, max_bytes: int | None = MAX_BYTES, **options: Any) -> Any:
    """A JSON document in UTF-8.

    Args:
        data: the document.
        max_bytes: the maximum size; None for no limit.
        options: as for ``json.loads``, such as ``object_pairs_hook``.

    Raises:
        ValueError: it is not valid JSON, too large, or nested more than 400 levels deep.
    """
    _check_size(len(data), max_bytes, "JSON")
    text = data if isinstance(data, str) else str(data, "utf-8").removeprefix("\ufeff")
    if text.count("[") + text.count("{") > MAX_JSON_DEPTH and _json_depth(text) > MAX_JSON_DEPTH:
        raise ValueError(f"JSON is nested more than {MAX_JSON_DEPTH} levels deep")
    return json.loads(text, **options)


def parse_toml(data: bytes, *, max_bytes: int = MAX_BYTES) -> dict[str, Any]:
    """A TOML document.

    Args:
        data: the document.
        max_bytes: the maximum size.

    Raises:
        ValueError: it is not valid TOML, too large, or a value or key is nested more than 100 levels deep.
    """
    _check_size(len(data), max_bytes, "TOML")
    text = data.decode("utf-8")
    _check_toml_depth(text)
    parsed: dict[str, Any] = tomllib.loads(text)
    return parsed


def _check_size(n_bytes: int, max_bytes: int | None, kind: str) -> None:
    if max_bytes is not None and n_bytes > max_bytes:
        raise ValueError(f"{kind} of {n_bytes:,} bytes exceeds the limit of {max_bytes:,} bytes")


def _json_depth(text: str) -> int:
    data = text.encode("utf-8", "surrogatepass")
    if b"\\" in data:
        data = re.sub(rb"\\.", b"", data, flags=re.DOTALL)
    brackets = re.sub(rb'"[^"]*"', b"", data.translate(None, _ALL_BUT_BRACKETS))
    steps = (np.frombuffer(brackets, np.uint8) & _OPENING).astype(np.int8) - 1
    return int(np.cumsum(steps, dtype=np.int32).max(initial=0))


def _check_toml_depth(text: str) -> None:
    position = depth = n_dots = 0
    while token := _TOML_TOKEN.search(text, position):
        position = token.end()
        if token[0] in _TOML_STRING_ENDS:
            position = _end_of_string(text, position, _TOML_STRING_ENDS[token[0]])
        elif token[0] in "[{":
            depth += 1
        elif token[0] in "]}":
            depth -= 1
        n_dots = n_dots + 1 if token[0] == "." else n_dots if token[0] in ("'", '"') else 0
        if max(depth, n_dots + 1) > MAX_TOML_DEPTH:
            raise ValueError(f"TOML is nested more than {MAX_TOML_DEPTH} levels deep")


def _end_of_string(text: str, position: int, end: re.Pattern[str]) -> int:
    while found := end.search(text, position):
        position = found.end()
        if not found[0].startswith("\\"):
            return position
    return len(text)
