"""Parses JSON and TOML from untrusted sources, with limits of size and depth."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Callable
from typing import Any, Final, NoReturn, TypeVar

import numpy as np

from data_stack.exception import DatasetFileCorruptError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_Value = TypeVar("_Value")
#: More than any dataset needs (the manifest of 100,000 resources has 15 MB), and small enough to parse without harm.
MAX_BYTES: Final = 64 << 20
#: The memory that the values of a document of :data:`MAX_BYTES` may take; the manifest of 400,000 resources takes half of it.
MAX_JSON_MEMORY: Final = 512 << 20
#: Bytes that CPython takes for a value which a mark in JSON may begin: a small dict, a list, a number and its place in a list,
#: half of a string's 56 bytes.
_BYTES_OF_MARK: Final = {"{": 240, "[": 88, ",": 40, '"': 28}
#: A level of plain data takes up to three brackets, and plain data have up to 100 levels.
MAX_JSON_DEPTH: Final = 400
#: Tables, arrays, and the parts of a dotted key, for which a parser takes quadratic time and memory.
MAX_TOML_DEPTH: Final = 100

_ALL_BUT_BRACKETS = bytes(set(range(256)) - set(b'[]{}"'))
_OPENING = 2  # the bit that tells "[" and "{" from "]" and "}"

#: Whole strings, which may lack their end, and comments; marks; ends of lines.
_TOML_TOKEN = re.compile(
    r"""\"{3}(?:\\.?|[^\\])*?(?:"{3,5}|\Z)|'{3}.*?(?:'{3,5}|\Z)|"(?:\\.?|[^"\\\n])*"?|'[^'\n]*'?"""
    r"""|\#[^\n]*|[\[\]{}.,=\n]""",
    re.DOTALL,
)


def parse_json(
    data: str | bytes | bytearray | memoryview, *, max_bytes: int | None = MAX_BYTES, **options: Any
) -> Any:
    """A JSON document in UTF-8.

    Args:
        data: the document.
        max_bytes: the maximum size; None for no limit.
        options: as for ``json.loads``, such as ``object_pairs_hook``.

    Raises:
        ValueError: it is not valid JSON, too large, nested more than 400 levels deep, or, with ``max_bytes``, would take too much
            memory (:func:`check_json_memory`).
    """
    _check_size(len(data), max_bytes, "JSON")
    if max_bytes is not None:
        check_json_memory(data)
    text = data if isinstance(data, str) else str(data, "utf-8").removeprefix("\ufeff")
    _check_json_depth(text)
    return json.loads(text, **options)


def json_parser(**options: Any) -> Callable[[str], Any]:
    """A parser of many short documents, with the limit of depth of :func:`parse_json`, and none of size.

    (``json.loads`` with options makes a decoder for each document, which takes longer than to parse a short one.)

    Args:
        options: as for ``json.loads``.
    """
    decode = json.JSONDecoder(**options).decode

    def parse(text: str) -> Any:
        _check_json_depth(text)
        return decode(text)

    return parse


def _check_json_depth(text: str) -> None:
    if text.count("[") + text.count("{") > MAX_JSON_DEPTH and _json_depth(text) > MAX_JSON_DEPTH:
        raise ValueError(f"JSON is nested more than {MAX_JSON_DEPTH} levels deep")


def check_json_memory(data: str | bytes | bytearray | memoryview) -> None:
    """Check that the values of a JSON document would take less memory than :data:`MAX_JSON_MEMORY`.

    64 MB of ``{},`` would become 2 GB. The marks in the text are counted, in strings too, and each is charged with what CPython
    takes for the largest value that it may stand for, so the estimate is rather too high.

    Raises:
        ValueError: the values would take more.
    """
    # Even an object for each three characters stays below the limit.
    if len(data) * _BYTES_OF_MARK["{"] // 3 <= MAX_JSON_MEMORY:
        return
    n_bytes = 2 * len(data)  # of text; a character takes up to twice its bytes in UTF-8
    for mark, size in _BYTES_OF_MARK.items():
        if isinstance(data, str):
            n_bytes += size * data.count(mark)
        else:
            n_bytes += size * bytes(data).count(mark.encode())
    if n_bytes > MAX_JSON_MEMORY:
        raise ValueError(
            f"JSON of {len(data):,} bytes holds so many values that they would take {n_bytes:,} bytes of memory; "
            f"the limit is {MAX_JSON_MEMORY:,}"
        )


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
    depth = n_dots = 0
    for token in _TOML_TOKEN.finditer(text):
        mark = token[0][0]
        depth += (mark in "[{") - (mark in "]}")
        n_dots = n_dots + 1 if mark == "." else n_dots if mark in "'\"" else 0
        if max(depth, n_dots + 1) > MAX_TOML_DEPTH:
            raise ValueError(f"TOML is nested more than {MAX_TOML_DEPTH} levels deep")
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


_MAX_SIZE = 2**63 - 1


def seal_json(fields: dict[str, Any]) -> bytes:
    """``fields`` as indented JSON with a ``digest`` of all of them."""
    return (json.dumps({**fields, "digest": _digest(fields)}, indent=1) + "\n").encode("ascii")


class JsonObject:
    """A JSON object whose fields are read by name and type; :meth:`done` refuses fields that were not read.

    Args:
        fields: the parsed object; anything but a ``dict`` is refused.
        what: names it in errors, e.g. ``"manifest of 'digits'"``.

    Raises:
        DatasetFileCorruptError: by every method, if a field is missing or of another type.
    """

    def __init__(self, fields: object, what: str) -> None:
        if not isinstance(fields, dict):
            raise DatasetFileCorruptError(
                f"{what} is damaged: it has {type(fields).__name__} where an object belongs"
            )
        self._fields: dict[str, Any] = dict(fields)
        self._what = what

    @classmethod
    def unseal(cls, data: bytes, what: str) -> JsonObject:
        """Parse what :func:`seal_json` wrote, and check its digest."""
        try:
            fields = parse_json(
                data.decode("ascii"),
                object_pairs_hook=distinct_fields,
                parse_constant=_refuse_constant,
            )
            sealed = cls(fields, what)
            stated, actual = sealed.text("digest"), _digest(sealed._fields)
        except ValueError as error:
            raise DatasetFileCorruptError(
                f"{what} is damaged: it is not valid JSON ({str(error)[:200]})"
            ) from error
        if stated != actual:
            raise DatasetFileCorruptError(
                f"{what} is damaged: its contents do not have the digest it states"
            )
        return sealed

    def value(self, name: str) -> Any:
        """Any value, to be checked by the caller.

        Raises:
            DatasetFileCorruptError: the field is missing.
        """
        if name not in self._fields:
            raise DatasetFileCorruptError(f"{self._what} is damaged: it has no field {name!r}")
        return self._fields.pop(name)

    def optional(self, read: Callable[..., _Value], name: str, *arguments: int) -> _Value | None:
        """What the method ``read`` gives for the field, or null."""
        return self.value(name) if self._fields.get(name, 0) is None else read(name, *arguments)

    def text(self, name: str) -> str:
        """A string."""
        value = self.value(name)
        return value if isinstance(value, str) else self._wrong(name, value, "a string")

    def flag(self, name: str) -> bool:
        """A truth value."""
        value = self.value(name)
        return value if isinstance(value, bool) else self._wrong(name, value, "true or false")

    def size(self, name: str) -> int:
        """A number of bytes."""
        value = self.value(name)
        return (
            value
            if type(value) is int and 0 <= value <= _MAX_SIZE
            else self._wrong(name, value, "a number of bytes")
        )

    def seconds(self, name: str) -> float:
        """A duration."""
        value = self.value(name)
        return (
            float(value)
            if type(value) in (int, float) and value >= 0
            else self._wrong(name, value, "a number of seconds")
        )

    def hexadecimal(self, name: str, n_digits: int) -> str:
        """A digest."""
        value = self.value(name)
        if isinstance(value, str) and re.fullmatch(f"[0-9a-f]{{{n_digits}}}", value):
            return value
        return self._wrong(name, value, f"{n_digits} hexadecimal digits")

    def objects(self, name: str) -> list[JsonObject]:
        """A list of objects."""
        value = self.value(name)
        if not isinstance(value, list):
            self._wrong(name, value, "a list")
        return [JsonObject(each, f"{name} of the {self._what}") for each in value]

    def known_format(self, *known: int | str, advice: str = "") -> Any:
        """The field ``format``, which must be one of ``known``, the newest last; else the error ends with ``advice``."""
        stated = self.value("format")
        if not any(type(stated) is type(each) and stated == each for each in known):
            raise DatasetFileCorruptError(
                f"{self._what} {describe_format(stated, known[-1])}. {advice}".rstrip(". ")
            )
        return stated

    def done(self) -> None:
        """Refuse fields that were not read."""
        if self._fields:
            self._wrong(*next(iter(self._fields.items())), "no such field")

    def _wrong(self, name: str, value: object, expected: str) -> NoReturn:
        shown = (
            f"{value!r:.60}" if isinstance(value, (str, bool, type(None))) else type(value).__name__
        )
        raise DatasetFileCorruptError(
            f"{self._what} is damaged: field {name[:60]!r} is {shown}, where {expected} belongs"
        )


def describe_format(stated: object, known: int | str) -> str:
    """What an error says of a stored format that is not ``known``, the newest one that this version reads."""
    advice = "if a newer data_stack wrote it, update data_stack (docs/stability.md lists which version reads what)"
    return f"has format {stated!r:.60}, and this version reads {known!r}; {advice}"


def _digest(fields: dict[str, Any]) -> str:
    canonical = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()


def distinct_fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An ``object_pairs_hook`` for ``json.loads``.

    Raises:
        ValueError: a name occurs twice.
    """
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a name occurs twice in an object")
    return fields


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
