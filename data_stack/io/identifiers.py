"""The grammar of identifiers, one for all stores.

An identifier is a relative POSIX path such as ``"mnist/raw/samples_train.gz"``:

- exactly a ``str``; 1 to 512 characters; 1 to 16 segments separated by ``/``;
- a segment has 1 to 200 characters, all of ``A-Z a-z 0-9 . _ - + = @ ,``, begins with a letter, a digit or
  ``_`` and does not end with a dot;
- no segment is a Windows device name (``CON``, ``NUL``, ``COM1`` …), with or without an extension.

Whether an identifier is refused depends on the identifier alone, never on what a store holds.
Names outside of the grammar (a leading dot, a ``~``) are therefore free for a store's own files.
"""

from __future__ import annotations

import re
from typing import Final

from data_stack.exception import MalformedIdentifierError, MaliciousFilePathError

MAX_CHARACTERS: Final = 512
MAX_SEGMENTS: Final = 16

_SEGMENT: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+=@,-]{0,199}", re.ASCII)
_DEVICE: Final = re.compile(
    r"(con|prn|aux|nul|clock\$|com[0-9]|lpt[0-9])(\..*)?", re.ASCII | re.IGNORECASE
)
_PREFIX: Final = re.compile(r"[A-Za-z0-9._+=@,/-]*", re.ASCII)


def check_identifier(identifier: object) -> str:
    """Return ``identifier`` if it is in the grammar.

    Raises:
        MalformedIdentifierError: it is not; the message says which rule it breaks. MaliciousFilePathError, which is one,
            where it is absolute or climbs out.
    """
    if type(identifier) is not str:
        # A subclass may lie in any of its methods.
        raise MalformedIdentifierError(
            f"an identifier must be a str, got {type(identifier).__name__}"
        )
    if len(identifier) > MAX_CHARACTERS:
        raise MalformedIdentifierError(
            f"identifier {identifier[:40]!r}… has more than {MAX_CHARACTERS} characters"
        )
    segments = identifier.split("/")
    if len(segments) > MAX_SEGMENTS:
        raise MalformedIdentifierError(
            f"identifier {identifier!r} has more than {MAX_SEGMENTS} segments"
        )
    if ".." in segments or identifier.startswith("/"):
        raise MaliciousFilePathError(
            f"identifier {identifier!r} leaves the store; give a relative path that does not climb"
        )
    for segment in segments:
        if not _SEGMENT.fullmatch(segment) or segment.endswith("."):
            rule = "1 to 200 letters, digits or '._-+=@,', beginning with a letter, digit or '_', not ending with a dot"
            raise MalformedIdentifierError(
                f"identifier {identifier!r} has the segment {segment!r}: a segment has {rule}"
            )
        if _DEVICE.fullmatch(segment):
            raise MalformedIdentifierError(
                f"identifier {identifier!r} names the device {segment!r}"
            )
    return identifier


def is_identifier(text: object) -> bool:
    """Whether ``text`` is in the grammar."""
    try:
        return bool(check_identifier(text))
    except MalformedIdentifierError:
        return False


def check_prefix(prefix: object) -> str:
    """Return ``prefix`` if identifiers can begin with it: any beginning of an identifier, or the empty string.

    Raises:
        MalformedIdentifierError: no identifier can begin so.
    """
    if type(prefix) is not str or not _PREFIX.fullmatch(prefix):
        raise MalformedIdentifierError(f"{prefix!r} cannot be the beginning of an identifier")
    return prefix
