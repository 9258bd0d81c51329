"""The names of the objects of a store. No identifier can have them."""

from __future__ import annotations

import re
from typing import Final

from data_stack.io.identifiers import OWN_FOLDER, is_identifier

#: Pointers, one for each resource.
RESOURCES: Final = f"{OWN_FOLDER}/resources"
#: The parts of resources.
OBJECTS: Final = f"{OWN_FOLDER}/objects"
LEASES: Final = f"{OWN_FOLDER}/leases"
#: Notes on the digests of plain files of other tools.
DIGESTS: Final = f"{OWN_FOLDER}/digests"
#: Unfinished files on file systems that publish by renaming: ``OWNER.RANDOM``, where OWNER is the
#: name of the process (:mod:`data_stack.io.storage_connectors.owners`).
TEMPORARIES: Final = f"{OWN_FOLDER}/temporaries"

_PART_PATH: Final = re.compile(re.escape(OBJECTS) + r"/[0-9a-f]{32}/[0-9]{1,9}")


def pointer_path(identifier: str) -> str:
    """Return the path of the pointer of a resource."""
    # No identifier holds "~", so the pointer of "a" is not in the way of the folder of "a/b".
    return f"{RESOURCES}/{identifier}~"


def identifier_of(path: str) -> str | None:
    """Return the identifier of a resource from the path of its pointer; None for other paths."""
    if not path.endswith("~"):
        return None
    identifier = path.removeprefix(f"{RESOURCES}/").removesuffix("~")
    return identifier if is_identifier(identifier) else None


def note_path(identifier: str) -> str:
    """Return the path of the note on the digest of a plain file."""
    return f"{DIGESTS}/{identifier}~"


def parts_folder(version: str) -> str:
    """Return the folder of the parts of a version."""
    return f"{OBJECTS}/{version}"


def part_path(version: str, number: int) -> str:
    """Return the path of a part of a version."""
    return f"{parts_folder(version)}/{number}"


def is_part_path(path: str) -> bool:
    """Return whether a path is that of a part, not something that another tool put among them."""
    return _PART_PATH.fullmatch(path) is not None
