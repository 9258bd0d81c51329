"""Two helpers of the original DataStack."""

from __future__ import annotations

import hashlib
import os
from typing import IO, Any


def is_safe_path(basedir: str, path: str, follow_symlinks: bool = True) -> bool:
    """Whether ``path`` is ``basedir`` or lies below it, after resolving symbolic links if ``follow_symlinks``."""
    resolve = os.path.realpath if follow_symlinks else os.path.abspath
    base = resolve(basedir)
    return os.path.commonpath([base, resolve(path)]) == base


def calculate_md5(byte_stream: IO[bytes] | Any, chunk_size: int = 1 << 20) -> str:
    """MD5 (32 hex digits) of the rest of a binary stream."""
    md5 = hashlib.md5(usedforsecurity=False)
    while chunk := byte_stream.read(chunk_size):
        md5.update(chunk)
    return md5.hexdigest()
