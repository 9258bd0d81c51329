"""Reads the descriptions in folders that ``save_to_disk`` of Hugging Face's ``datasets`` writes.

A ``Dataset`` is a folder of Arrow files in the stream format, which ``state.json`` lists; its
features are in ``dataset_info.json``. A ``DatasetDict`` is a folder of such folders, one for each
split, which ``dataset_dict.json`` lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from data_stack.exception import DatasetFileCorruptError
from data_stack.io.folder import Folder
from data_stack.util.untrusted_text import MAX_BYTES, parse_json

STATE: Final = "state.json"
"""The file that lists the Arrow files of a dataset."""

INFO: Final = "dataset_info.json"
"""The file with the features of a dataset."""

SPLITS: Final = "dataset_dict.json"
"""The file that lists the splits of a dataset."""

#: The keys of the list of index files, which version 1 of ``datasets`` wrote.
_KEYS_OF_INDICES: Final = ("_indices_data_files", "_indices_files")


@dataclass(frozen=True, slots=True)
class SavedDataset:
    """What a folder of a saved dataset says of it.

    Attributes:
        data_files: the names of the Arrow files, in their order.
        indices_files: the names of Arrow files whose column holds the positions of the rows that
            the dataset has; empty if it has all rows in their order.
        features: the features by column; None if they are those of the Arrow files.
    """

    data_files: tuple[str, ...]
    indices_files: tuple[str, ...]
    features: dict[str, Any] | None


def is_saved_dataset(names: Sequence[str]) -> bool:
    """Return whether the files in a folder may be those of a saved dataset."""
    return STATE in names and INFO in names


def read_saved_dataset(folder: Folder) -> SavedDataset:
    """Read the description of a saved dataset.

    Raises:
        DatasetFileCorruptError: it is damaged, or names a file outside of the folder.
    """
    state = _read_object(folder, STATE)
    indices_files: tuple[str, ...] = ()
    for key in _KEYS_OF_INDICES:
        indices_files += _list_file_names(folder, state.get(key) or [], key)
    data_files = _list_file_names(folder, state.get("_data_files"), "_data_files")
    if not data_files:
        raise DatasetFileCorruptError(f"{folder.describe(STATE)} lists no Arrow files")

    features = None
    if folder.has_file(INFO):
        features = _read_object(folder, INFO).get("features")
        if features is not None and not isinstance(features, dict):
            raise DatasetFileCorruptError(f"the features in {folder.describe(INFO)} are damaged")
    return SavedDataset(data_files, indices_files, features)


def read_split_names(folder: Folder, names: Sequence[str]) -> list[str]:
    """Return the names of the splits of a saved dataset, each of which is a folder in it.

    Args:
        folder: the folder of the dataset.
        names: what is in the folder.

    Raises:
        DatasetFileCorruptError: the list is damaged, or the folder of a split is missing.
    """
    splits = _read_object(folder, SPLITS).get("splits")
    if not isinstance(splits, list) or not splits:
        raise DatasetFileCorruptError(f"{folder.describe(SPLITS)} lists no splits")
    for split in splits:
        # A name that is in the folder leads nowhere else.
        if not isinstance(split, str) or split not in names:
            raise DatasetFileCorruptError(
                f"{folder.describe(SPLITS)} lists the split {split!r:.80}, which is not there"
            )
    return splits


def _read_object(folder: Folder, name: str) -> dict[str, Any]:
    """Read a file with a JSON object.

    Raises:
        DatasetFileCorruptError: it is too large or damaged.
    """
    with folder.open(name) as file:
        data = file.read(MAX_BYTES + 1)
    try:
        content = parse_json(data)
    except ValueError as error:
        raise DatasetFileCorruptError(
            f"{folder.describe(name)} cannot be read as JSON: {error!s:.200}"
        ) from error
    if not isinstance(content, dict):
        raise DatasetFileCorruptError(f"{folder.describe(name)} holds no JSON object")
    return content


def _list_file_names(folder: Folder, entries: Any, key: str) -> tuple[str, ...]:
    """Return the names of files that a state lists as ``[{"filename": "data-….arrow"}]``.

    Raises:
        DatasetFileCorruptError: it lists none, or a file outside of the folder.
    """
    names = []
    try:
        for entry in entries:
            names.append(entry["filename"])
    except (TypeError, KeyError, IndexError) as error:
        raise DatasetFileCorruptError(f"{key!r} of {folder.describe(STATE)} is damaged") from error
    for name in names:
        if not _is_plain_name(name):
            raise DatasetFileCorruptError(
                f"{folder.describe(STATE)} lists {name!r:.200}, which is no file of the folder"
            )
    return tuple(names)


def _is_plain_name(name: Any) -> bool:
    """Return whether a name is that of a file in the same folder on every system."""
    if not isinstance(name, str) or not name or name.startswith("."):
        return False
    try:
        name.encode()
    except UnicodeEncodeError:  # half a character, as JSON may hold it
        return False
    return not any(character in name for character in "/\\\0")
