"""Finds the datasets at a place: the place itself, or one for each of its splits."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from data_stack.exception import ConfigError
from data_stack.formats.dataset_files import DatasetFiles
from data_stack.formats.format import Format
from data_stack.formats.registry import (
    NEVER_SAMPLES,
    detect_format,
    format_named,
    format_of_file,
    known_formats,
    stem_of_file,
    stems_of_files,
    without_compression,
)
from data_stack.formats.split_names import (
    SplitName,
    differ_in_numbers_only,
    group_by_split,
    in_order_of_numbers,
    in_order_of_splits,
    split_of,
    warn_of_missing_parts,
)
from data_stack.io.folder import Folder
from data_stack.io.location import Location

#: The folder that holds the splits in the Hub's layout, beside a README.
_DATA_FOLDER: Final = "data"

#: How many files or folders the message about several formats names.
_MAX_SHOWN: Final = 20

#: How many files other messages name.
_MAX_SHOWN_FILES: Final = 3


def find_places(place: Location, kind: str | None = None) -> dict[str, DatasetFiles]:
    """Find the datasets at a place: its splits, or else the place itself, or else what lies in it.

    The names of files and folders decide, by the rule of :mod:`data_stack.formats.split_names`.
    The splits lie in the folder, or in the folder ``data`` in it.

    Args:
        place: a file or folder.
        kind: the name of its format; None to detect it.

    Returns:
        The datasets by the names of their splits; or a single one by the name of the place; or, for
        a folder of datasets, each of them by its own name.

    Raises:
        ConfigError: the place is empty, its format is not recognized, it holds datasets of several
            formats, or a file that is named as a split has no known format.
    """
    if kind is not None:
        kind = format_named(kind).name
    splits = find_splits(place, kind)
    if splits:
        return splits
    if kind is not None:
        return {place.name: DatasetFiles(kind, (place,), is_place=True)}

    # The place is one dataset, or each file and folder in it is one.
    try:
        format_ = detect_format(place)
    except ConfigError:
        datasets = _find_datasets_beside(place)
        if not datasets:
            raise
        return datasets
    return {place.name: DatasetFiles(format_.name, (place,), is_place=True)}


# ---------------------------------------------------------------------- splits


def find_splits(place: Location, kind: str | None = None) -> dict[str, DatasetFiles]:
    """Find the splits in a folder, or in the folder ``data`` in it.

    Args:
        place: a file or folder.
        kind: the name of its format; None to detect it.

    Returns:
        The splits by name; empty if the folder is one dataset, or for a file.

    Raises:
        ConfigError: the splits have several formats, or a file that is named as a split has no
            known format.
    """
    names = _visible_names(place)
    if _lists_its_files(names):
        return {}
    splits = _find_listed_splits(place.as_folder(), names, kind)
    if splits:
        return splits
    splits = _find_splits(place.as_folder(), names, kind)
    if splits:
        warn_of_missing_parts(place.full_name, names)
        return _as_one_if_named_alike(place, splits)

    if _DATA_FOLDER not in names:
        return {}
    data_folder = Location(place.as_folder(), _DATA_FOLDER)
    names_in_data = _visible_names(data_folder)
    if _lists_its_files(names_in_data):
        return {}
    splits = _find_splits(data_folder.as_folder(), names_in_data, kind)
    if splits:
        warn_of_missing_parts(data_folder.full_name, names_in_data)
    return splits


def _lists_its_files(names: Iterable[str]) -> bool:
    """Return whether a file in a folder says that all of the folder is one dataset."""
    listing_files: set[str] = set()
    for format_ in known_formats().values():
        listing_files.update(format_.listing_files)
    return not listing_files.isdisjoint(names)


def _find_listed_splits(
    folder: Folder, names: Sequence[str], kind: str | None
) -> dict[str, DatasetFiles]:
    """Find the splits that a file in a folder lists; none without such a file."""
    for format_ in known_formats().values():
        if kind not in (None, format_.name):
            continue
        splits = format_.list_splits(folder, names)
        if splits:
            return {
                split: DatasetFiles(format_.name, (Location(folder, split),), is_split=True)
                for split in splits
            }
    return {}


def _as_one_if_named_alike(
    place: Location, splits: dict[str, DatasetFiles]
) -> dict[str, DatasetFiles]:
    """Return a folder ``train`` of ``train-000000.tar`` and so on as one dataset."""
    name_of_place = split_of(place.name)
    if len(splits) > 1 or name_of_place is None or name_of_place.split not in splits:
        return splits
    return {place.name: replace(splits[name_of_place.split], is_place=True)}


def _visible_names(place: Location) -> list[str]:
    """Return the names in a folder that are not hidden.

    A file has no names in it. A store that cannot list counts as if it were empty.
    """
    folder = place.as_folder()
    # A store that can delete can list its files, too.
    can_list = folder.can_delete
    if not can_list:
        return []
    if format_of_file(place.name) is not None and place.is_file():
        return []
    return [name for name in folder.list_names() if not name.startswith(".")]


def _find_splits(folder: Folder, names: list[str], kind: str | None) -> dict[str, DatasetFiles]:
    """Find the splits in a folder by the names of what holds samples.

    Args:
        folder: the folder.
        names: what is in it.
        kind: the name of the format; None to detect it.

    Returns:
        The splits by name; empty if no name says a split.
    """
    split_names = _split_names_in(names)
    if not _are_names_of_splits(split_names.values()):
        return {}
    parts = _find_parts(folder, names, split_names, kind)
    parts = _without_companions(parts)
    groups = group_by_split(stems_of_files(parts))
    if not groups or _are_classes(folder, parts):
        return {}

    splits: dict[str, DatasetFiles] = {}
    for split, members in groups.items():
        kinds = {parts[name].kind for name in members}
        if len(kinds) > 1:
            kinds_of_parts = {name: files.kind for name, files in parts.items()}
            raise _several_formats_error(folder, kinds_of_parts)
        locations: list[Location] = []
        for name in members:
            locations.extend(parts[name].parts)
        is_split = any(name in split_names for name in members)
        splits[split] = DatasetFiles(kinds.pop(), tuple(locations), is_split=is_split)
    _check_one_format(folder, splits)
    if kind is None:
        _check_no_split_is_lost(folder, names, splits)
    return splits


def _split_names_in(names: Iterable[str]) -> dict[str, SplitName]:
    """Return the split of each name that contains a word for a split."""
    split_names = {}
    for name, stem in stems_of_files(names).items():
        split_name = split_of(stem)
        if split_name is not None:
            split_names[name] = split_name
    return split_names


def _are_names_of_splits(split_names: Iterable[SplitName]) -> bool:
    """Return whether a folder with these names may have splits.

    One name is exactly that of a split, or the names have several purposes.
    """
    all_names = list(split_names)
    if any(split_name.is_exact for split_name in all_names):
        return True
    purposes = {split_name.purpose for split_name in all_names}
    return len(purposes) > 1


def _find_parts(
    folder: Folder, names: Iterable[str], split_names: Mapping[str, SplitName], kind: str | None
) -> dict[str, DatasetFiles]:
    """Find the files and folders with samples in a folder that has names of splits.

    Args:
        folder: the folder.
        names: what is in it.
        split_names: the splits of those names that contain a word for a split.
        kind: the name of the format; None for any format.

    Returns:
        The files of each dataset by its name; empty if no split holds samples.
    """
    parts: dict[str, DatasetFiles] = {}
    for name in split_names:
        files = _files_of_entry(Location(folder, name), kind)
        if files is not None:
            parts[name] = files
    if not parts:
        return {}
    for name in names:
        if name in split_names:
            continue
        entry = Location(folder, name)
        format_ = _format_or_none(entry)
        if format_ is not None and kind in (None, format_.name):
            parts[name] = DatasetFiles(format_.name, (entry,))
    return parts


def _without_companions(parts: Mapping[str, DatasetFiles]) -> dict[str, DatasetFiles]:
    """Return the datasets without metadata files and without files of vague suffixes."""
    formats = [format_named(files.kind) for files in parts.values()]
    metadata_files: set[str] = set()
    for format_ in formats:
        metadata_files.update(format_.metadata_files)
    datasets = {name: files for name, files in parts.items() if name not in metadata_files}
    return {name: datasets[name] for name in _without_vague_suffixes(datasets)}


def _without_vague_suffixes(parts: Mapping[str, DatasetFiles]) -> list[str]:
    """Return the names of datasets without files that may hold anything, such as ``.bin``.

    Such a file is a dataset only if there is no other.
    """
    certain = [
        name for name, files in parts.items() if not format_named(files.kind).is_suffix_vague
    ]
    return certain or list(parts)


def _files_of_entry(entry: Location, kind: str | None) -> DatasetFiles | None:
    """Return the files of a file or folder that is named as a split.

    Returns:
        None if it holds no samples of the format.

    Raises:
        ConfigError: it is a folder of files that are not the parts of one dataset.
    """
    format_ = _format_or_none(entry)
    if format_ is not None:
        if kind not in (None, format_.name):
            return None
        return DatasetFiles(format_.name, (entry,))

    folder = entry.as_folder()
    kinds: dict[str, str] = {}
    for name in sorted(_visible_names(entry), key=in_order_of_numbers):
        format_of_part = format_of_file(name)
        if format_of_part is not None and kind in (None, format_of_part.name):
            kinds[name] = format_of_part.name
    if not kinds:
        return None
    if len(set(kinds.values())) > 1:
        raise _several_formats_error(folder, kinds)
    if not differ_in_numbers_only(stems_of_files(kinds).values()):
        raise ConfigError(
            f"{entry.full_name} is named as a split, but its files {_listed(kinds)} are not parts "
            "of one dataset, whose names differ in their numbers only; load each by its own path"
        )
    warn_of_missing_parts(entry.full_name, kinds)
    parts = tuple(Location(folder, name) for name in kinds)
    return DatasetFiles(next(iter(kinds.values())), parts)


def _are_classes(folder: Folder, parts: Mapping[str, DatasetFiles]) -> bool:
    """Return whether folders are classes, one of which is named as a split: bus, car, train.

    It is a class if it holds samples itself, and no other folder is named as a split.
    """
    if not all(format_named(files.kind).has_class_folders for files in parts.values()):
        return False
    exactly_named = []
    for name in parts:
        split_name = split_of(name)
        if split_name is not None and split_name.is_exact:
            exactly_named.append(name)
    if len(exactly_named) != 1 or len(parts) == 1:
        return False
    name = exactly_named[0]
    return format_named(parts[name].kind).is_class_folder(folder.subfolder(name).list_names())


# ---------------------------------------------------------------------- checks of splits


def _check_one_format(folder: Folder, datasets: Mapping[str, DatasetFiles]) -> None:
    """Check that all datasets in a folder have one format.

    Raises:
        ConfigError: they have several formats.
    """
    kinds = {files.name: files.kind for files in datasets.values()}
    if len(set(kinds.values())) > 1:
        raise _several_formats_error(folder, kinds)


def _several_formats_error(folder: Folder, kinds: Mapping[str, str]) -> ConfigError:
    """Return the error to raise for a folder with several formats.

    Args:
        folder: the folder.
        kinds: the names of the formats by the names of the files.
    """
    datasets = [f"{name} ({kind})" for name, kind in kinds.items()]
    shown_datasets = ", ".join(datasets[:_MAX_SHOWN])
    place = folder.describe("").rstrip("/")
    return ConfigError(
        f"{place} holds datasets of several formats: {shown_datasets}; name one of them"
    )


def _check_no_split_is_lost(
    folder: Folder, names: Iterable[str], splits: Mapping[str, DatasetFiles]
) -> None:
    """Check that each file that is named as a split is read, or another file of that split is.

    Raises:
        ConfigError: the samples of a split would be left out.
    """
    names_read: set[str] = set()
    for files in splits.values():
        names_read.update(part.name for part in files.parts)
    for name in names:
        if name in names_read:
            continue
        stem, suffix = os.path.splitext(without_compression(name))
        split_name = split_of(stem)
        is_split = split_name is not None and split_name.is_exact
        if split_name is None or not is_split or split_name.split in splits:
            continue
        # A license, a script or a file that may hold anything is no lost split; nor is a folder.
        may_have_samples = bool(suffix) and suffix.lower() not in NEVER_SAMPLES
        format_ = format_of_file(name)
        is_vague = format_ is not None and format_.is_suffix_vague
        if not may_have_samples or is_vague or not folder.has_file(name):
            continue
        others = _listed(sorted(names_read))
        raise ConfigError(
            f"{folder.full_name(name)} is named as a split, but its suffix {suffix!r:.20} is of no "
            f"known format; convert it to that of {others}, or load {others} by path"
        )


# ---------------------------------------------------------------------- no names of splits


def _find_datasets_beside(place: Location) -> dict[str, DatasetFiles]:
    """Find the datasets in a folder that is not one itself, by their names.

    Folders that are the classes of one dataset are that dataset.

    Raises:
        ConfigError: the datasets are of several formats.
    """
    folder = place.as_folder()
    parts: dict[str, DatasetFiles] = {}
    visible_names = [name for name in folder.list_names() if not name.startswith(".")]
    for name in in_order_of_splits(visible_names):
        entry = Location(folder, name)
        format_ = _format_or_none(entry)
        # What has no format is a license or a readme.
        if format_ is not None:
            parts[name] = DatasetFiles(format_.name, (entry,))
    names = _without_vague_suffixes(parts)
    formats = {parts[name].kind for name in names}
    if len(formats) == 1:
        format_ = format_named(formats.pop())
        if format_.has_class_folders:
            return {place.name: DatasetFiles(format_.name, (place,), is_place=True)}

    warn_of_missing_parts(place.full_name, names)
    datasets: dict[str, DatasetFiles] = {}
    for name in names:
        dataset_name = stem_of_file(name)
        # ``a.npz`` after ``a.csv`` keeps its suffix.
        if dataset_name in datasets:
            dataset_name = name
        datasets[dataset_name] = parts[name]
    _check_one_format(folder, datasets)
    return datasets


def _format_or_none(place: Location) -> Format | None:
    """Return the format of a file or folder; None for a license, a readme or an empty folder."""
    with contextlib.suppress(ConfigError):
        return detect_format(place)
    return None


def _listed(names: Iterable[str]) -> str:
    """Return the first names as text, and how many more there are."""
    all_names: Sequence[str] = list(names)
    shown_names = ", ".join(all_names[:_MAX_SHOWN_FILES])
    n_more = len(all_names) - _MAX_SHOWN_FILES
    if n_more > 0:
        return f"{shown_names} and {n_more} more"
    return shown_names
