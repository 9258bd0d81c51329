"""Where a dataset lies that is converted, and which format it has there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from data_stack.dataset.definition import did_you_mean
from data_stack.exception import ConfigError
from data_stack.formats.image_folder import holds_images
from data_stack.formats.records.layout import SPEC, shard_name
from data_stack.formats.records.place import Place, place_of
from data_stack.io.resources import StreamedResource
from data_stack.io.storage_connectors import StorageConnector
from data_stack.io.storage_connectors.url import storage_connector_from_url
from data_stack.io.url import split_url

__all__ = ["FORMATS", "Location", "checked_format", "location_of", "source_format", "target_format"]

FORMATS: Final[Mapping[str, str]] = {
    "records": "a folder of records (Granular's files), sharded or not",
    "hdf5": "an HDF5 file (.h5, .hdf5), one dataset a column",
    "npz": "a NumPy archive (.npz), one array a column",
    "torch": "a file of torch.save (.pt, .pth) with a dict of tensors; to read, also a folder of .pt files, one tensor each",
    "webdataset": "a .tar in WebDataset's manner, or a folder of such shards",
    "parquet": "a folder of Parquet files; to read, also one file (.parquet)",
    "images": "a folder of images, one folder a class, with metadata.jsonl if there is more to say",
}
"""The formats by name, and what each is."""

_ALIASES: Final[Mapping[str, str]] = {
    "granular": "records",
    "h5": "hdf5",
    "pt": "torch",
    "tar": "webdataset",
    "wds": "webdataset",
    "image-folder": "images",
    "imagefolder": "images",
}
_SUFFIXES: Final[Mapping[str, str]] = {
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
_PARQUET_NAMES: Final = frozenset({"_common_metadata", "_metadata", "_data_stack_manifest.json", "_data_stack_progress"})
_MOST_FOLDERS_LOOKED_INTO: Final = 3


@dataclass(frozen=True)
class Location:
    """A file or folder, of this machine or of a store.

    Attributes:
        root: a folder of this machine (absolute), or a StorageConnector.
        folder: the folder below the root that it lies in; empty for the root itself.
        name: what it is called there.
    """

    root: str | StorageConnector
    folder: str
    name: str

    @property
    def path(self) -> Path | None:
        """Where it lies on this machine."""
        return Path(self.root, self.folder, self.name) if isinstance(self.root, str) else None

    @property
    def identifier(self) -> str:
        """Its path below the root."""
        return f"{self.folder}/{self.name}" if self.folder else self.name

    @property
    def parent(self) -> Place:
        """The folder that it lies in."""
        return place_of(self.root, self.folder)

    @property
    def place(self) -> Place:
        """The folder that it is."""
        return place_of(self.root, self.identifier)

    @property
    def shown(self) -> str:
        """What to call it in messages; no password is in it."""
        return str(self.path) if self.path is not None else f"{self.identifier} in {self.root!r}"

    def sibling(self, name: str) -> Location:
        """Another one in the same folder."""
        return replace(self, name=name)

    def open(self) -> StreamedResource:
        """The file that it is; the caller closes it."""
        return self.parent.open(self.name)

    def is_file(self) -> bool:
        """Whether it is there, as a file."""
        return self.parent.exists(self.name)

    def is_folder(self) -> bool:
        """Whether it is there, as a folder with something in it."""
        return bool(self.place.names())


def location_of(given: Any) -> Location:
    """The location that a path, a URL or ``(connector, "folder/name")`` means.

    Raises:
        ConfigError: it is none of these, or a URL of a store that does not say what in it is meant.
    """
    if isinstance(given, Location):
        return given
    if isinstance(given, tuple) and len(given) == 2 and hasattr(given[0], "get_resource"):
        folder, _, name = str(given[1]).strip("/").rpartition("/")
        if not name:
            raise ConfigError(f"a dataset in a store needs a name there, such as 'sets/train', not {given[1]!r:.80}")
        return Location(given[0], folder, name)
    if isinstance(given, str) and "://" in given:
        store, name = split_url(given)
        return location_of(name) if store is None else location_of((storage_connector_from_url(store), name))
    if isinstance(given, (str, os.PathLike)):
        path = os.path.abspath(os.path.expanduser(os.fsdecode(given)))
        folder, name = os.path.split(path)
        if not name or "\0" in path or not os.fsdecode(given):
            raise ConfigError(f"{given!r} names no file or folder")
        return Location(folder, "", name)
    raise ConfigError(f"a dataset lies at a path, a URL, or (connector, name), not at {given!r:.80}")


def checked_format(name: str) -> str:
    """The name of a format, also by an alias.

    Raises:
        ConfigError: there is no such format.
    """
    known = _ALIASES.get(name.lower(), name.lower())
    if known not in FORMATS:
        raise ConfigError(f"there is no format {name!r:.40}{did_you_mean(name, FORMATS)}; there are: {', '.join(FORMATS)}")
    return known


def source_format(location: Location) -> str:
    """The format of what lies at ``location``, by its suffix or what the folder holds.

    Raises:
        ConfigError: nothing is there, or what is there fits no format, or several.
    """
    if location.is_file():
        suffix = os.path.splitext(location.name)[1].lower()
        if suffix not in _SUFFIXES:
            raise ConfigError(
                f"the format of {location.shown} cannot be told from its name (known: {', '.join(_SUFFIXES)}); say which it is: "
                f"--from {' or '.join(FORMATS)}"
            )
        return _SUFFIXES[suffix]
    found = formats_of_folder(location.place)
    if not found and not location.is_folder():
        raise ConfigError(f"there is nothing at {location.shown}")
    if len(found) != 1:
        fits = f"fits {' and '.join(found)}" if found else "fits none"
        raise ConfigError(
            f"which format {location.shown} has cannot be told: what it holds {fits}; say it: --from {' or '.join(FORMATS)}"
        )
    return found[0]


def formats_of_folder(place: Place) -> list[str]:
    """The formats that a folder may be of, by the names of what it holds."""
    names = place.names()
    found = []
    if SPEC in names or (shard_name(0) in names and place.child(shard_name(0)).exists(SPEC)):
        found.append("records")
    if any(name.endswith(".tar") for name in names):
        found.append("webdataset")
    if any(name.endswith((".pt", ".pth")) for name in names):
        found.append("torch")
    if _PARQUET_NAMES.intersection(names) or any(name.endswith((".parquet", ".parq", ".pq")) or "=" in name for name in names):
        found.append("parquet")
    if not found:
        folders = [name for name in names if "." not in name][:_MOST_FOLDERS_LOOKED_INTO]
        if holds_images(names) or any(holds_images(place.child(folder).names()) for folder in folders):
            found.append("images")
    return found


def target_format(location: Location) -> str:
    """The format that is meant by a target: that of what is there, else what its suffix says, else records.

    Raises:
        ConfigError: its suffix says nothing.
    """
    suffix = os.path.splitext(location.name)[1].lower()
    if suffix in _SUFFIXES:
        return _SUFFIXES[suffix]
    found = formats_of_folder(location.place)
    if len(found) == 1:
        return found[0]
    if suffix and not found:
        raise ConfigError(
            f"which format {location.shown} shall have cannot be told from its name (known: {', '.join(_SUFFIXES)}); say it: "
            f"--to {' or '.join(FORMATS)}"
        )
    return "records"
