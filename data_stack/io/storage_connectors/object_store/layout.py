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
#: Digests of plain files of other tools.
DIGESTS: Final = f"{OWN_FOLDER}/digests"
#: Unfinished files on file systems that publish by renaming. A name begins with that of the process
#: and a dot.
TEMPORARIES: Final = f"{OWN_FOLDER}/temporaries"

_PART_PATH: Final = re.compile(re.escape(OBJECTS) + r"/[0-9a-f]{32}/[0-9]{1,9}")


def pointer_path(identifier: str) -> str:
    """Return the path of the pointer of a resource."""
    # No identifier holds "~", so the pointer of "a" is not in the way of the folder of "a/b".
    return f"{RESOURCES}/{identifier}~"


def identifier_of(pointer_path: str) -> str | None:
    """Return the identifier of the path of a pointer; None for other paths."""
    if not pointer_path.endswith("~"):
        return None
    identifier = pointer_path.removeprefix(f"{RESOURCES}/")[:-1]
    return identifier if is_identifier(identifier) else None


def note_path(identifier: str) -> str:
    """Return the path of the digest of a plain file."""
    return f"{DIGESTS}/{identifier}~"


def parts_folder(version: str | None) -> str:
    """Return the folder of the parts of a version."""
    return f"{OBJECTS}/{version}"


def part_path(version: str | None, number: int) -> str:
    """Return the path of a part."""
    return f"{parts_folder(version)}/{number}"


def is_part_path(path: str) -> bool:
    """Return whether a path is that of a part, not something that another tool put among them."""
    return _PART_PATH.fullmatch(path) is not None
