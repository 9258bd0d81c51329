"""Tells which blobs of Azure stand for folders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: How accounts with a hierarchical namespace, and adlfs, mark blobs that stand for folders.
_FOLDER_MARKS: Final = ("hdi_isfolder", "is_directory")


def is_folder(metadata: Mapping[str, str]) -> bool:
    """Return whether a blob stands for a folder.

    Args:
        metadata: what is stored with the blob.
    """
    values = {name.lower(): value for name, value in metadata.items()}
    return any(values.get(mark) == "true" for mark in _FOLDER_MARKS)
