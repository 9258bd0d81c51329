"""Checks of the values in a decoded pickle: is a value an object, a text, a plain value?"""

from __future__ import annotations

from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any, Final

import numpy as np

from data_stack_petastorm.pickles.stubs import ObjectStub, Refusal, describe

#: The types of plain values. A bool is an int, and a datetime is a date.
_PLAIN_TYPES: Final = (
    str,
    bytes,
    int,
    float,
    complex,
    Decimal,
    date,
    time,
    timedelta,
    np.datetime64,
    np.timedelta64,
)


def expect_object(value: Any, role: str) -> ObjectStub:
    """Return the value if it is a stub of an object of this role.

    Raises:
        Refusal: the value is something else.
    """
    if not isinstance(value, ObjectStub) or value.known.role != role:
        raise Refusal(f"{describe(value)} where a {role} belongs")
    return value


def attributes_of(stub: ObjectStub) -> dict[str, Any]:
    """Return the attributes of an object by name.

    Raises:
        Refusal: the name of an attribute is not text.
    """
    if stub.state is None:
        return {}
    return {
        expect_text(name, "the name of an attribute"): value for name, value in stub.state.items
    }


def expect_text(value: Any, what: str) -> str:
    """Return the value if it is a text.

    Args:
        value: the value.
        what: what the text is used for, for the message.

    Raises:
        Refusal: the value is something else, or a ``str`` of Python 2 that holds bytes.
    """
    text = plain_value(value) if isinstance(value, str) else None
    if not isinstance(text, str):
        raise Refusal(f"{describe(value)} as {what}")
    return text


def plain_value(value: Any) -> Any:
    """Return the value if it is a plain one; a ``str`` of Python 2 that is not text becomes bytes.

    Raises:
        Refusal: the value is a stub, a list, a tuple, or None.
    """
    if isinstance(value, str) and not value.isascii():
        return _text_or_bytes(value)
    if not isinstance(value, _PLAIN_TYPES):
        raise Refusal(f"{describe(value)} as a value")
    return value


def _text_or_bytes(value: str) -> str | bytes:
    """Return a ``str`` of a pickle as text, or as bytes if it is not text.

    Raises:
        Refusal: it is neither: it has half of a pair of surrogates.
    """
    try:
        # Python 2 wrote characters beyond 16 bits as pairs of surrogates, which this joins.
        utf_16 = value.encode("utf-16", "surrogatepass")
        text = utf_16.decode("utf-16", "surrogatepass")
        # The other surrogates stand for bytes that are not UTF-8.
        raw = text.encode("utf-8", "surrogateescape")
    except UnicodeError as error:
        raise Refusal(f"the invalid text {value[:40]!r}") from error
    has_surrogates = any("\ud800" <= character <= "\udfff" for character in text)
    return raw if has_surrogates else text
