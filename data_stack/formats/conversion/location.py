"""Detects the format of a dataset by its name and content."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from data_stack.exception import ConfigError
from data_stack.formats.image_folder import holds_images
from data_stack.formats.records.layout import SPEC, shard_name
from data_stack.io.folder import Folder
from data_stack.io.location import Location
from data_stack.util.suggestions import did_you_mean

FORMATS: Final = ("records", "hdf5", "npz", "torch", "webdataset", "parquet", "images")
"""The formats by name."""

SUFFIXES: Final[Mapping[str, str]] = {
    ".h5": "hdf5",
    ".hdf5": "hdf5",
    ".hdf": "hdf5",
    ".npz": "npz",
    ".pt": "torch",
    ".pth": "torch",
    ".tar": "webdataset",
    ".parquet": "parquet",
    ".parq": "parquet",
    ".pq": "parquet",
}
#: What lies beside Parquet files; their own module needs pyarrow.
_PARQUET_NAMES: Final = frozenset({"_common_metadata", "_metadata", "_data_stack_manifest.parquet", "_data_stack_progress"})
_MOST_FOLDERS_LOOKED_INTO: Final = 3


def check_format(name: str) -> str:
    """The name of a format.

    Raises:
        ConfigError: there is no such format.
    """
    known = name.lower()
    if known not in FORMATS:
        raise ConfigError(f"there is no format {name!r:.40}{did_you_mean(name, FORMATS)}; there are: {', '.join(FORMATS)}")
    return known


def find_source_format(location: Location) -> str:
    """The format of what lies at ``location``, by its suffix or what the folder holds.

    Raises:
        ConfigError: nothing is there, or what is there fits no format, or several.
    """
    if location.is_file():
        suffix = os.path.splitext(location.name)[1].lower()
        if suffix not in SUFFIXES:
            raise ConfigError(
                f"the format of {location.full_name} cannot be told from its name (known: {', '.join(SUFFIXES)}); say which it "
                f"is: --from {' or '.join(FORMATS)}"
            )
        return SUFFIXES[suffix]
    found = _formats_of_folder(location.as_folder())
    if not found and not location.is_folder():
        raise ConfigError(f"there is nothing at {location.full_name}")
    if len(found) != 1:
        fits = f"fits {' and '.join(found)}" if found else "fits none"
        raise ConfigError(
            f"which format {location.full_name} has cannot be told: what it holds {fits}; say it: --from {' or '.join(FORMATS)}"
        )
    return found[0]


def _formats_of_folder(folder: Folder) -> list[str]:
    """The formats that a folder may be of, by the names of what it holds."""
    names = folder.list_names()
    found = []
    if SPEC in names or (shard_name(0) in names and folder.subfolder(shard_name(0)).has_file(SPEC)):
        found.append("records")
    if any(name.endswith(".tar") for name in names):
        found.append("webdataset")
    if any(name.endswith((".pt", ".pth")) for name in names):
        found.append("torch")
    if _PARQUET_NAMES.intersection(names) or any(name.endswith((".parquet", ".parq", ".pq")) or "=" in name for name in names):
        found.append("parquet")
    if not found:
        folders = [name for name in names if "." not in name][:_MOST_FOLDERS_LOOKED_INTO]
        if holds_images(names) or any(holds_images(folder.subfolder(name).list_names()) for name in folders):
            found.append("images")
    return found


def find_target_format(location: Location) -> str:
    """The format that the suffix of a target says; records without one.

    Raises:
        ConfigError: the suffix is unknown.
    """
    suffix = os.path.splitext(location.name)[1].lower()
    if suffix and suffix not in SUFFIXES:
        raise ConfigError(
            f"the format of {location.full_name} is unknown: its name ends in none of {', '.join(SUFFIXES)}; choose one by "
            f"--to {' or '.join(FORMATS)}"
        )
    return SUFFIXES.get(suffix, "records")
