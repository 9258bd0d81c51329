"""Two helpers of the original DataStack."""

from __future__ import annotations

import hashlib
import os
from typing import IO, Any


def is_safe_path(basedir: str, path: str, follow_symlinks: bool = True) -> bool:
    """Return whether ``path`` is ``basedir`` or lies below it.

    Args:
        basedir: a folder.
        path: a file or folder.
        follow_symlinks: resolve symbolic links in both first.
    """
    if follow_symlinks:
        resolved_base = os.path.realpath(basedir)
        resolved_path = os.path.realpath(path)
    else:
        resolved_base = os.path.abspath(basedir)
        resolved_path = os.path.abspath(path)
    return os.path.commonpath([resolved_base, resolved_path]) == resolved_base


def calculate_md5(byte_stream: IO[bytes] | Any, chunk_size: int = 1 << 20) -> str:
    """Return the MD5, as 32 hexadecimal digits, of what is left of a binary stream.

    Args:
        byte_stream: the stream, which is read to its end.
        chunk_size: how many bytes are read at once.
    """
    md5 = hashlib.md5(usedforsecurity=False)
    while True:
        chunk = byte_stream.read(chunk_size)
        if not chunk:
            return md5.hexdigest()
        md5.update(chunk)
