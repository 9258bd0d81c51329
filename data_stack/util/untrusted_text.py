"""Parses JSON and TOML from untrusted sources, with limits of size, depth and memory."""

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

#: The largest document in bytes: more than any dataset needs (the manifest of 100,000 resources
#: has 15 MB), and small enough to parse without harm.
MAX_BYTES: Final = 64 << 20

#: The memory that the values of a document of :data:`MAX_BYTES` may take; the manifest of 400,000
#: resources takes half of it.
MAX_JSON_MEMORY: Final = 512 << 20

#: How deep the brackets of JSON may be nested. Plain data have up to 100 levels, and each takes up
#: to three brackets.
MAX_JSON_DEPTH: Final = 400

#: How deep tables and arrays of TOML may be nested, and how many parts a dotted key may have. A
#: parser takes quadratic time and memory for these.
MAX_TOML_DEPTH: Final = 100

#: The largest size of a file that a field may state.
_MAX_SIZE: Final = 2**63 - 1

#: For each mark in JSON, the bytes that CPython takes for the value that may begin there: a small
#: dict, a list, a number with its place in a list, and half of the 56 bytes of a string.
_BYTES_OF_MARK: Final = {"{": 240, "[": 88, ",": 40, '"': 28}

#: For ``bytes.translate``: all bytes but brackets and quotes.
_ALL_BUT_BRACKETS: Final = bytes(set(range(256)) - set(b'[]{}"'))

#: The bit that tells "[" and "{" from "]" and "}" in ASCII.
_OPENING_BIT: Final = 2

#: A token of TOML: a string, also one that lacks its end, a comment, a mark, or an end of a line.
_TOML_TOKEN: Final = re.compile(
    r"""\"{3}(?:\\.?|[^\\])*?(?:"{3,5}|\Z)|'{3}.*?(?:'{3,5}|\Z)|"(?:\\.?|[^"\\\n])*"?|'[^'\n]*'?"""
    r"""|\#[^\n]*|[\[\]{}.,=\n]""",
    re.DOTALL,
)


# -------------------------------------------------------------------------------------------- JSON


def parse_json(
    data: str | bytes | bytearray | memoryview, *, max_bytes: int | None = MAX_BYTES, **options: Any
) -> Any:
    """Return the value of a JSON document in UTF-8.

    Args:
        data: the document.
        max_bytes: the maximum size; None for no limit.
        options: as for ``json.loads``, such as ``object_pairs_hook``.

    Raises:
        ValueError: it is not valid JSON, too large, nested more than 400 levels deep, or, with
            ``max_bytes``, would take too much memory (:func:`check_json_memory`).
    """
    _check_size(len(data), max_bytes, "JSON")
    if max_bytes is not None:
        check_json_memory(data)
    if isinstance(data, str):
        text = data
    else:
        text = str(data, "utf-8").removeprefix("\ufeff")
    _check_json_depth(text)
    return json.loads(text, **options)


def place_in_line(error: ValueError) -> tuple[str, str]:
    """Return where in a line of JSON lines an error is, and what is wrong there.

    The text of a JSONDecodeError counts lines from the one that was parsed, so in a message on line
    7 of a file it would say "line 1".

    Args:
        error: the error of a parser for the line.

    Returns:
        ``", column 6"``, which is empty if the place is unknown; and the reason without a place.
    """
    if not isinstance(error, json.JSONDecodeError):
        return "", str(error)
    reason = error.msg.removesuffix(" starting at")
    if not error.doc[error.pos :].strip():
        reason = f"{reason}; each line must hold a whole JSON object, which ends in that line"
    return f", column {error.colno}", reason


def json_parser(
    *,
    object_pairs_hook: Callable[[list[tuple[str, Any]]], Any] | None = None,
    parse_float: Callable[[str], Any] | None = None,
) -> Callable[[str], Any]:
    """Return a parser of many short documents.

    The parser has the limit of depth of :func:`parse_json`, and none of size. (``json.loads`` with
    options makes a decoder for each document, which takes longer than to parse a short one.)

    Args:
        object_pairs_hook: as for ``json.loads``.
        parse_float: as for ``json.loads``.
    """
    decoder = json.JSONDecoder(object_pairs_hook=object_pairs_hook, parse_float=parse_float)
    decode = decoder.decode

    def parse(text: str) -> Any:
        _check_json_depth(text)
        return decode(text)

    return parse


def check_json_memory(data: str | bytes | bytearray | memoryview) -> None:
    """Check that the values of a JSON document would take less memory than :data:`MAX_JSON_MEMORY`.

    64 MB of ``{},`` would become 2 GB. The estimate counts the marks ``{ [ , "`` in the text, also
    those in strings, each as the largest value that may begin there. So it is rather too high.

    Raises:
        ValueError: the values would take more.
    """
    # The most values that a text can hold are objects of three characters each.
    max_value_bytes = len(data) * _BYTES_OF_MARK["{"] // 3
    if max_value_bytes <= MAX_JSON_MEMORY:
        return
    # The characters of strings take up to twice their bytes in UTF-8.
    n_bytes = 2 * len(data)
    for mark, value_bytes in _BYTES_OF_MARK.items():
        n_bytes += value_bytes * _count_mark(data, mark)
    if n_bytes > MAX_JSON_MEMORY:
        raise ValueError(
            f"JSON of {len(data):,} bytes holds so many values that they would take {n_bytes:,} "
            f"bytes of memory; the limit is {MAX_JSON_MEMORY:,}"
        )


def distinct_fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object's fields; an ``object_pairs_hook`` for ``json.loads``.

    Raises:
        ValueError: a name occurs twice.
    """
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a name occurs twice in an object")
    return fields


def _count_mark(data: str | bytes | bytearray | memoryview, mark: str) -> int:
    """Return how often a mark occurs in a document."""
    if isinstance(data, str):
        return data.count(mark)
    return bytes(data).count(mark.encode())


def _check_json_depth(text: str) -> None:
    # Most documents have few brackets, so their depth need not be found out.
    n_opening_brackets = text.count("[") + text.count("{")
    if n_opening_brackets <= MAX_JSON_DEPTH:
        return
    if _json_depth(text) > MAX_JSON_DEPTH:
        raise ValueError(f"JSON is nested more than {MAX_JSON_DEPTH} levels deep")


def _json_depth(text: str) -> int:
    """Return how many levels of brackets a text has, without parsing it.

    Strings are taken out first, so that brackets in them do not count.
    """
    data = text.encode("utf-8", "surrogatepass")
    if b"\\" in data:
        # Escaped quotes do not end a string.
        data = re.sub(rb"\\.", b"", data, flags=re.DOTALL)
    brackets_and_quotes = data.translate(None, _ALL_BUT_BRACKETS)
    brackets = re.sub(rb'"[^"]*"', b"", brackets_and_quotes)
    opening_bits = np.frombuffer(brackets, np.uint8) & _OPENING_BIT  # 2 or 0
    steps = opening_bits.astype(np.int8) - 1  # 1 or -1
    depth_after_bracket = np.cumsum(steps, dtype=np.int32)
    return int(depth_after_bracket.max(initial=0))


def _check_size(n_bytes: int, max_bytes: int | None, kind: str) -> None:
    if max_bytes is not None and n_bytes > max_bytes:
        raise ValueError(f"{kind} of {n_bytes:,} bytes exceeds the limit of {max_bytes:,} bytes")


# -------------------------------------------------------------------------------------------- TOML


def parse_toml(data: bytes, *, max_bytes: int = MAX_BYTES) -> dict[str, Any]:
    """Return the table of a TOML document.

    Args:
        data: the document, in UTF-8.
        max_bytes: the maximum size.

    Raises:
        ValueError: it is not valid TOML, too large, or a value or key is nested more than 100
            levels deep.
    """
    _check_size(len(data), max_bytes, "TOML")
    text = data.decode("utf-8")
    _check_toml_depth(text)
    table: dict[str, Any] = tomllib.loads(text)
    return table


def _check_toml_depth(text: str) -> None:
    """Check how deep brackets are nested, and how many parts the dotted keys have.

    Raises:
        ValueError: more than :data:`MAX_TOML_DEPTH`.
    """
    depth = 0
    n_dots = 0  # in the dotted key that is being read
    for token in _TOML_TOKEN.finditer(text):
        mark = token[0][0]
        if mark in "[{":
            depth += 1
        elif mark in "]}":
            depth -= 1
        if mark == ".":
            n_dots += 1
        elif mark not in "'\"":  # a quoted text may be a part of a dotted key
            n_dots = 0
        n_key_parts = n_dots + 1
        if max(depth, n_key_parts) > MAX_TOML_DEPTH:
            raise ValueError(f"TOML is nested more than {MAX_TOML_DEPTH} levels deep")


# -------------------------------------------------------------------- JSON with a digest of itself


def seal_json(fields: dict[str, Any]) -> bytes:
    """Return ``fields`` as indented JSON with a field ``digest``, the SHA-256 of all others."""
    sealed_fields = {**fields, "digest": _digest(fields)}
    return (json.dumps(sealed_fields, indent=1) + "\n").encode("ascii")


def _digest(fields: dict[str, Any]) -> str:
    canonical = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode("ascii")).hexdigest()


class JsonObject:
    """A JSON object whose fields are read by name and type.

    Each method takes a field out of the object; :meth:`done` refuses fields that were not read.

    Args:
        fields: the parsed object; anything but a ``dict`` is refused.
        what: the name of the text in errors, e.g. ``"manifest of 'digits'"``.

    Raises:
        DatasetFileCorruptError: by every method, if a field is missing or of another type.
    """

    #: The fields that were not read so far.
    _fields: dict[str, Any]

    def __init__(self, fields: object, what: str) -> None:
        if not isinstance(fields, dict):
            raise DatasetFileCorruptError(
                f"{what} is damaged: expected an object, got {type(fields).__name__}"
            )
        self._fields = dict(fields)
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
            stated_digest = sealed.text("digest")
            actual_digest = _digest(sealed._fields)
        except ValueError as error:
            raise DatasetFileCorruptError(
                f"{what} is damaged: it is not valid JSON ({str(error)[:200]})"
            ) from error
        if stated_digest != actual_digest:
            raise DatasetFileCorruptError(
                f"{what} is damaged: its contents do not have the digest it states"
            )
        return sealed

    def value(self, name: str) -> Any:
        """Return a field of any type, which the caller checks.

        Raises:
            DatasetFileCorruptError: the field is missing.
        """
        if name not in self._fields:
            raise DatasetFileCorruptError(f"{self._what} is damaged: it has no field {name!r}")
        return self._fields.pop(name)

    def optional(self, read: Callable[..., _Value], name: str, *arguments: int) -> _Value | None:
        """Return the value of a field that may be null, and must be there.

        Args:
            read: the method of this object that reads the field if it is not null.
            name: the name of the field.
            arguments: what ``read`` takes after the name.
        """
        if name in self._fields and self._fields[name] is None:
            return self.value(name)  # type: ignore[no-any-return]  # it is None
        return read(name, *arguments)

    def text(self, name: str) -> str:
        """Return a field that is a string."""
        value = self.value(name)
        if not isinstance(value, str):
            self._refuse(name, value, "a string")
        return value

    def flag(self, name: str) -> bool:
        """Return a field that is true or false."""
        value = self.value(name)
        if not isinstance(value, bool):
            self._refuse(name, value, "true or false")
        return value

    def size(self, name: str) -> int:
        """Return a field that is a number of bytes: an integer, not negative."""
        value = self.value(name)
        is_integer = type(value) is int  # bool is a subclass of int
        if not is_integer or not 0 <= value <= _MAX_SIZE:
            self._refuse(name, value, "a number of bytes")
        size: int = value
        return size

    def seconds(self, name: str) -> float:
        """Return a field that is a duration in seconds, not negative."""
        value = self.value(name)
        if type(value) not in (int, float) or value < 0:
            self._refuse(name, value, "a number of seconds")
        return float(value)

    def hexadecimal(self, name: str, n_digits: int) -> str:
        """Return a field that is a digest of ``n_digits`` hexadecimal digits."""
        value = self.value(name)
        if not isinstance(value, str) or not re.fullmatch(f"[0-9a-f]{{{n_digits}}}", value):
            self._refuse(name, value, f"{n_digits} hexadecimal digits")
        return value

    def objects(self, name: str) -> list[JsonObject]:
        """Return a field that is a list of objects."""
        value = self.value(name)
        if not isinstance(value, list):
            self._refuse(name, value, "a list")
        return [JsonObject(fields, f"{name} of the {self._what}") for fields in value]

    def known_format(self, *known: int | str, advice: str = "") -> Any:
        """Return the field ``format``.

        Args:
            known: the formats that are read, the newest last. Any other is refused.
            advice: what the error says at its end.
        """
        stated = self.value("format")
        # True equals 1, but is not a format.
        is_known = any(type(stated) is type(number) and stated == number for number in known)
        if not is_known:
            problem = f"{self._what} {describe_format(stated, known[-1])}. {advice}"
            raise DatasetFileCorruptError(problem.rstrip(". "))
        return stated

    def done(self) -> None:
        """Refuse fields that were not read."""
        for name, value in self._fields.items():
            self._refuse(name, value, "no such field")

    def _refuse(self, name: str, value: object, expected: str) -> NoReturn:
        if isinstance(value, (str, bool, type(None))):
            shown = f"{value!r:.60}"
        else:
            shown = type(value).__name__
        raise DatasetFileCorruptError(
            f"{self._what} is damaged: field {name[:60]!r} is {shown}, expected {expected}"
        )


def describe_format(stated: object, known: int | str) -> str:
    """Return what an error says of a stored format that this version cannot read.

    Args:
        stated: the format that the file states.
        known: the newest one that this version reads.
    """
    return (
        f"has format {stated!r:.60}, and this version reads {known!r}; if a newer data_stack wrote "
        f"it, update data_stack (docs/stability.md lists which version reads what)"
    )


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
