"""The names of members in an archive, which a stranger has written."""

from __future__ import annotations

import re
from typing import Final

from data_stack.exception import UnsafeArchiveError

_MAX_NAME_CHARACTERS: Final = 1024
#: Control characters, a backslash (a separator on Windows), and what could not be decoded.
_FORBIDDEN: Final = re.compile("[\x00-\x1f\x7f-\x9f\\\\\ud800-\udfff]")
#: The beginning of an absolute path, on Windows too.
_ABSOLUTE: Final = re.compile(r"/|[A-Za-z]:")


def normalize_member_name(name: str, archive: str) -> str:
    """Return the name of a member as a plain relative path.

    Args:
        name: the name as written.
        archive: the name of the archive, for the message.

    Returns:
        The name without ``./``, ``//`` and a trailing ``/``; empty for the archive's top folder.

    Raises:
        UnsafeArchiveError: the name is absolute, climbs out, is too long, or is not portable.
    """
    if len(name) > _MAX_NAME_CHARACTERS:
        raise UnsafeArchiveError(
            f"{archive!r} has a member name of {len(name)} characters, "
            f"more than {_MAX_NAME_CHARACTERS}"
        )
    segments = [segment for segment in name.split("/") if segment not in ("", ".")]
    if _ABSOLUTE.match(name) or ".." in segments:
        raise UnsafeArchiveError(
            f"{archive!r} has a member {name!r}, which lies outside of the target folder"
        )
    if _FORBIDDEN.search(name):
        raise UnsafeArchiveError(
            f"{archive!r} has a member {name!r} with a backslash, control character "
            "or undecodable byte"
        )
    return "/".join(segments)


class MemberNames:
    """The names that have occurred in an archive, to refuse the second of two equal ones.

    Only a folder may occur again, as archives often name the same folder several times.

    Args:
        archive: the name of the archive, for the message.
    """

    _archive: str
    #: Whether a name is that of a folder, by name.
    _is_folder_by_name: dict[str, bool]

    def __init__(self, archive: str) -> None:
        self._archive = archive
        self._is_folder_by_name = {}

    def add(self, name: str, *, is_folder: bool) -> None:
        """Add the name of the next member.

        Raises:
            UnsafeArchiveError: the name occurred before, and not both members are folders.
        """
        if name in self._is_folder_by_name:
            are_both_folders = is_folder and self._is_folder_by_name[name]
            if not are_both_folders:
                raise UnsafeArchiveError(f"{self._archive!r} has two members {name!r}")
        self._is_folder_by_name[name] = is_folder
