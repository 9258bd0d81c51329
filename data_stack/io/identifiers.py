"""The grammar of identifiers, one for all stores.

An identifier is a relative POSIX path such as ``"mnist/raw/samples_train.gz"``:

- exactly a ``str``; 1 to 512 characters; 1 to 16 segments separated by ``/``;
- a segment has 1 to 200 characters, all of ``A-Z a-z 0-9 . _ - + = @ ,``, begins with a letter, a
  digit or ``_`` and does not end with a dot;
- no segment is a Windows device name (``CON``, ``NUL``, ``COM1`` …), with or without an
  extension.

Whether an identifier is refused depends on the identifier alone, never on what a store holds. Names
outside of the grammar (a leading dot, a ``~``) are therefore free for a store's own files.

Other tools name their files as they like: ``city=New York/part(2).parquet``. A *key* is the name of
any file in a store. Keys are read and deleted, but nothing is stored under a key that is no
identifier. A key is a ``str`` of 1 to 4,096 characters without NUL; no segment is ``.`` or ``..``;
the first segment is not ``.data_stack``, where stores keep their own files; the name does not begin
with ``.~``, as an unfinished write does.
"""

from __future__ import annotations

import re
from typing import Final

from data_stack.exception import MalformedIdentifierError, MaliciousFilePathError

MAX_CHARACTERS: Final = 512
MAX_SEGMENTS: Final = 16
#: No object store allows more than 1,024 bytes, no file system more than 4,096.
MAX_KEY_CHARACTERS: Final = 4096
#: The folder of a store's own files.
OWN_FOLDER: Final = ".data_stack"
#: Beginning of the name of an unfinished write of a folder store.
_UNFINISHED: Final = ".~"

_SEGMENT: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+=@,-]{0,199}", re.ASCII)
_DEVICE: Final = re.compile(
    r"(con|prn|aux|nul|clock\$|com[0-9]|lpt[0-9])(\..*)?", re.ASCII | re.IGNORECASE
)
_PREFIX: Final = re.compile(r"[A-Za-z0-9._+=@,/-]*", re.ASCII)

#: How much of a bad name is shown in a message.
_MAX_SHOWN_CHARACTERS: Final = 80
_MAX_SHOWN_OF_LONG: Final = 40


def check_identifier(identifier: object) -> str:
    """Return ``identifier`` if it is in the grammar.

    Raises:
        MalformedIdentifierError: it is not; the message says which rule it breaks.
        MaliciousFilePathError: it is absolute or climbs out. The error is a
            MalformedIdentifierError too.
    """
    if type(identifier) is not str:
        # A subclass may lie in any of its methods.
        raise MalformedIdentifierError(
            f"an identifier must be a str, got {type(identifier).__name__}"
        )
    if len(identifier) > MAX_CHARACTERS:
        raise MalformedIdentifierError(
            f"identifier {identifier[:_MAX_SHOWN_OF_LONG]!r}… has more than "
            f"{MAX_CHARACTERS} characters"
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
            raise MalformedIdentifierError(
                f"identifier {identifier!r} has the segment {segment!r}: a segment has 1 to 200 "
                "letters, digits or '._-+=@,', beginning with a letter, digit or '_', "
                "not ending with a dot"
            )
        if _DEVICE.fullmatch(segment):
            raise MalformedIdentifierError(
                f"identifier {identifier!r} names the device {segment!r}"
            )
    return identifier


def is_identifier(text: object) -> bool:
    """Return whether ``text`` is in the grammar."""
    try:
        check_identifier(text)
    except MalformedIdentifierError:
        return False
    return True


def check_prefix(prefix: object) -> str:
    """Return ``prefix`` if identifiers can begin with it.

    It is any beginning of an identifier, or the empty string.

    Raises:
        MalformedIdentifierError: no identifier can begin so.
    """
    if type(prefix) is not str or not _PREFIX.fullmatch(prefix):
        raise MalformedIdentifierError(f"{prefix!r} cannot be the beginning of an identifier")
    return prefix


def check_key(key: object) -> str:
    """Return ``key`` if a file of a store can have this name.

    Raises:
        MalformedIdentifierError: it cannot; the message says why.
        MaliciousFilePathError: it climbs out. The error is a MalformedIdentifierError too.
    """
    checked_key = check_key_prefix(key)
    if not checked_key or checked_key.endswith("/"):
        shown = checked_key[:_MAX_SHOWN_CHARACTERS]
        raise MalformedIdentifierError(f"{shown!r} is not the name of a file")
    return checked_key


def check_key_prefix(prefix: object) -> str:
    """Return ``prefix`` if keys can begin with it.

    It is any beginning of a key, or the empty string.

    Raises:
        MalformedIdentifierError: no key can begin so; the message says why.
        MaliciousFilePathError: it climbs out. The error is a MalformedIdentifierError too.
    """
    if type(prefix) is not str:
        raise MalformedIdentifierError(f"a key must be a str, got {type(prefix).__name__}")
    if len(prefix) > MAX_KEY_CHARACTERS:
        raise MalformedIdentifierError(
            f"key {prefix[:_MAX_SHOWN_OF_LONG]!r}… has more than {MAX_KEY_CHARACTERS:,} characters"
        )
    shown = prefix[:_MAX_SHOWN_CHARACTERS]
    if "\0" in prefix:
        raise MalformedIdentifierError(f"key {shown!r} holds the character NUL")
    segments = prefix.split("/")
    if "." in segments or ".." in segments:
        raise MaliciousFilePathError(
            f"key {shown!r} has the segment '.' or '..'; give a path that does not climb"
        )
    if segments[0] == OWN_FOLDER or segments[-1].startswith(_UNFINISHED):
        raise MalformedIdentifierError(f"{shown!r} is a file of the store itself")
    return prefix


def is_key(text: object) -> bool:
    """Return whether a file of a store can have this name."""
    try:
        check_key(text)
    except MalformedIdentifierError:
        return False
    return True
