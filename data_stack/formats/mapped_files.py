"""Maps the files of this machine into memory, as many as the system allows."""

from __future__ import annotations

import mmap
import weakref
from typing import Final

from data_stack.io.local_files import map_file, most_open_files
from data_stack.io.positional import PositionalFile

#: The maps of this process, each of which keeps a descriptor open.
_maps: Final[weakref.WeakSet[mmap.mmap]] = weakref.WeakSet()


def map_sealed_file(file: PositionalFile) -> mmap.mmap | None:
    """Map a file into memory.

    Returns:
        None if the file must be read instead: it is empty or not of this machine, too many files
        are mapped, or a caller has opened it and may cut it short. Reading the missing part of a
        map ends the process.
    """
    if not file.resource.is_sealed or not file.size:
        return None
    if len(_maps) >= most_open_files():
        return None
    mapped = map_file(file.resource, file.size)
    if mapped is not None:
        _maps.add(mapped)
    return mapped
