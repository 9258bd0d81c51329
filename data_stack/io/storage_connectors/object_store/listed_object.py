"""Checks the objects that a listing names."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from data_stack.io.storage_connectors.object_store.s3 import WrongAnswerError

#: The size of an object is less than 2**63.
_MAX_SIZE_DIGITS: Final = 18


def listed_object(
    key: str | None,
    *,
    size: str | None,
    etag: str | None,
    modified: str | None,
    parse_time: Callable[[str], datetime],
) -> dict[str, Any]:
    """Return an object as :class:`.ListingPage` has it, from the texts of a listing.

    Args:
        key: the key of the object.
        size: its length in bytes.
        etag: the name of its version; None or empty if the server gives none.
        modified: when it was changed; None or empty if the server does not say.
        parse_time: parses that time, or raises ValueError, TypeError or OverflowError.

    Raises:
        WrongAnswerError: there is no key, or size or time are malformed.
    """
    checked_key = checked_name(key)
    listed: dict[str, Any] = {"Key": checked_key, "ETag": etag or ""}
    try:
        listed["Size"] = _parse_size(size)
        if modified:
            listed["LastModified"] = parse_time(modified)
    except (ValueError, TypeError, OverflowError):
        raise WrongAnswerError(
            f"the server lists {checked_key!r:.200} without its size, or with a malformed time"
        ) from None
    return listed


def checked_name(name: str | None) -> str:
    """Return the key of an object, or the beginning of keys.

    Raises:
        WrongAnswerError: there is none.
    """
    if not name:
        raise WrongAnswerError("the server lists an object without a key")
    return name


def decoded_name(text: str, unquote: Callable[..., str]) -> str:
    """Return a percent-encoded key.

    Args:
        text: the encoded key.
        unquote: the function of ``urllib.parse`` that decodes it.

    Raises:
        WrongAnswerError: it is not UTF-8. With other characters in place of its bytes, it would be
            the key of another object.
    """
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise WrongAnswerError(f"the server lists {text!r:.200}, which is not UTF-8") from None


def _parse_size(text: str | None) -> int:
    """Return the number in a text of digits.

    Raises:
        ValueError: it is no such text, or larger than any object.
    """
    # int() takes "-1", "1_000" and digits of other scripts, too.
    if text is None or not (text.isascii() and text.isdigit()):
        raise ValueError("not a size")
    if len(text) > _MAX_SIZE_DIGITS:
        raise ValueError("not a size")
    return int(text)


def parse_iso_time(text: str) -> datetime:
    """Return the time in ``2026-01-02T03:04:05.678Z``, or raise ValueError."""
    return datetime.fromisoformat(text.replace("Z", "+00:00"))
