"""JSON of an exact shape with a digest, checked when it is read."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, NoReturn

from data_stack.exception import DatasetFileCorruptError
from data_stack.util.untrusted_text import MAX_BYTES, parse_json

__all__ = ["MAX_BYTES", "JsonObject", "distinct_fields", "seal_json"]

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
            raise DatasetFileCorruptError(f"{what} is damaged: it has {type(fields).__name__} where an object belongs")
        self._fields: dict[str, Any] = dict(fields)
        self._what = what

    @classmethod
    def unseal(cls, data: bytes, what: str) -> JsonObject:
        """Parse what :func:`seal_json` wrote, and check its digest."""
        try:
            fields = parse_json(data.decode("ascii"), object_pairs_hook=distinct_fields, parse_constant=_refuse_constant)
            sealed = cls(fields, what)
            stated, actual = sealed.text("digest"), _digest(sealed._fields)
        except ValueError as error:
            raise DatasetFileCorruptError(f"{what} is damaged: it is not valid JSON ({str(error)[:200]})") from error
        if stated != actual:
            raise DatasetFileCorruptError(f"{what} is damaged: its contents do not have the digest it states")
        return sealed

    def value(self, name: str) -> Any:
        """Any value, to be checked by the caller.

        Raises:
            DatasetFileCorruptError: the field is missing.
        """
        if name not in self._fields:
            raise DatasetFileCorruptError(f"{self._what} is damaged: it has no field {name!r}")
        return self._fields.pop(name)

    def text(self, name: str) -> str:
        """A string."""
        value = self.value(name)
        return value if isinstance(value, str) else self._wrong(name, value, "a string")

    def optional_text(self, name: str) -> str | None:
        """A string or null."""
        return self.value(name) if self._fields.get(name, 0) is None else self.text(name)

    def flag(self, name: str) -> bool:
        """A truth value."""
        value = self.value(name)
        return value if isinstance(value, bool) else self._wrong(name, value, "true or false")

    def size(self, name: str) -> int:
        """A number of bytes."""
        value = self.value(name)
        return value if type(value) is int and 0 <= value <= _MAX_SIZE else self._wrong(name, value, "a number of bytes")

    def optional_size(self, name: str) -> int | None:
        """A number of bytes or null."""
        return self.value(name) if self._fields.get(name, 0) is None else self.size(name)

    def optional_seconds(self, name: str) -> float | None:
        """A duration or null."""
        value = self.value(name)
        if value is None or (type(value) in (int, float) and value >= 0):
            return None if value is None else float(value)
        return self._wrong(name, value, "a number of seconds")

    def hexadecimal(self, name: str, n_digits: int) -> str:
        """A digest."""
        value = self.value(name)
        if isinstance(value, str) and re.fullmatch(f"[0-9a-f]{{{n_digits}}}", value):
            return value
        return self._wrong(name, value, f"{n_digits} hexadecimal digits")

    def optional_hexadecimal(self, name: str, n_digits: int) -> str | None:
        """A digest or null."""
        return self.value(name) if self._fields.get(name, 0) is None else self.hexadecimal(name, n_digits)

    def objects(self, name: str) -> list[JsonObject]:
        """A list of objects."""
        value = self.value(name)
        if not isinstance(value, list):
            self._wrong(name, value, "a list")
        return [JsonObject(each, f"{name} of the {self._what}") for each in value]

    def done(self) -> None:
        """Refuse fields that were not read."""
        if self._fields:
            self._wrong(*next(iter(self._fields.items())), "no such field")

    def _wrong(self, name: str, value: object, expected: str) -> NoReturn:
        shown = f"{value!r:.60}" if isinstance(value, (str, bool, type(None))) else type(value).__name__
        raise DatasetFileCorruptError(f"{self._what} is damaged: field {name[:60]!r} is {shown}, where {expected} belongs")


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
