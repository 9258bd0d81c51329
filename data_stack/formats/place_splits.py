"""Finds the datasets at a place: itself, or the splits that its files and folders are."""

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
)
from data_stack.io.folder import Folder
from data_stack.io.location import Location

#: The folder that holds the splits in the Hub's layout, beside a README.
_DATA_FOLDER: Final = "data"

#: How many files or folders a message names.
_MAX_SHOWN: Final = 20


def find_places(place: Location, kind: str | None = None) -> dict[str, DatasetFiles]:
    """Find the datasets at a place by the names of their splits: itself, or those in a folder.

    The names of files and folders decide, by the rule of :mod:`data_stack.formats.split_names`.
    The splits lie in the folder, or in the folder ``data`` in it.

    Args:
        place: a file or folder.
        kind: the name of its format; None to detect it.

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

    # The folder is one dataset; or else the files and folders in it are.
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
        ConfigError: as for :func:`find_places`.
    """
    names = _visible_names(place)
    if _lists_its_files(names):
        return {}
    splits = _find_splits(place.as_folder(), names, kind)
    if splits:
        return _as_one_if_named_alike(place, splits)

    if _DATA_FOLDER not in names:
        return {}
    data_folder = Location(place.as_folder(), _DATA_FOLDER)
    names_in_data = _visible_names(data_folder)
    if _lists_its_files(names_in_data):
        return {}
    return _find_splits(data_folder.as_folder(), names_in_data, kind)


def _lists_its_files(names: Iterable[str]) -> bool:
    """Return whether a file in a folder says that all of the folder is one dataset."""
    listing_files: set[str] = set()
    for format_ in known_formats().values():
        listing_files.update(format_.listing_files)
    return not listing_files.isdisjoint(names)


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

    There are none in a file, nor where the store cannot list.
    """
    folder = place.as_folder()
    if not folder.can_delete:
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
    if not _name_splits(split_names.values()):
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
            raise _several_formats_error(folder, {name: parts[name].kind for name in parts})
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
    """Return what those names say that name a split."""
    split_names = {}
    for name, stem in stems_of_files(names).items():
        split_name = split_of(stem)
        if split_name is not None:
            split_names[name] = split_name
    return split_names


def _name_splits(split_names: Iterable[SplitName]) -> bool:
    """Return whether names mean splits: one of them exactly, or several purposes."""
    all_names = list(split_names)
    if any(split_name.is_exact for split_name in all_names):
        return True
    purposes = {split_name.purpose for split_name in all_names}
    return len(purposes) > 1


def _find_parts(
    folder: Folder, names: Iterable[str], split_names: Mapping[str, SplitName], kind: str | None
) -> dict[str, DatasetFiles]:
    """Find what holds samples in a folder with names of splits; empty if no split does."""
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
    """Return what is a dataset, without files that only describe others, or may hold anything."""
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
    if len({files.kind for files in datasets.values()}) > 1:
        raise _several_formats_error(
            folder, {files.name: files.kind for files in datasets.values()}
        )


def _several_formats_error(folder: Folder, kinds: Mapping[str, str]) -> ConfigError:
    shown = [f"{name} ({kind})" for name, kind in kinds.items()]
    held = ", ".join(shown[:_MAX_SHOWN])
    place = folder.describe("").rstrip("/")
    return ConfigError(f"{place} holds datasets of several formats: {held}; name one of them")


def _check_no_split_is_lost(
    folder: Folder, names: Iterable[str], splits: Mapping[str, DatasetFiles]
) -> None:
    """Check that each file that is named as a split is read, or another file of that split is.

    Raises:
        ConfigError: the samples of a split would be left out.
    """
    names_read = {part.name for files in splits.values() for part in files.parts}
    for name in names:
        if name in names_read:
            continue
        stem, suffix = os.path.splitext(without_compression(name))
        split_name = split_of(stem)
        if split_name is None or not split_name.is_exact or split_name.split in splits:
            continue
        if not suffix or suffix.lower() in NEVER_SAMPLES:
            continue
        format_ = format_of_file(name)
        is_vague = format_ is not None and format_.is_suffix_vague
        if is_vague or not folder.has_file(name):
            continue
        others = _listed(sorted(names_read))
        raise ConfigError(
            f"{folder.full_name(name)} is named as a split, but its suffix {suffix!r:.20} is of no "
            f"known format; convert it to that of {others}, or load {others} by path"
        )


# ---------------------------------------------------------------------- datasets without names of
# splits


def _find_datasets_beside(place: Location) -> dict[str, DatasetFiles]:
    """Find the datasets in a folder that is not one itself, by their names.

    Folders that are the classes of one dataset are that dataset.

    Raises:
        ConfigError: the datasets are of several formats.
    """
    folder = place.as_folder()
    parts: dict[str, DatasetFiles] = {}
    for name in in_order_of_splits(folder.list_names()):
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

    datasets: dict[str, DatasetFiles] = {}
    for name in names:
        stem = stem_of_file(name)
        datasets[name if stem in datasets else stem] = parts[name]
    _check_one_format(folder, datasets)
    return datasets


def _format_or_none(place: Location) -> Format | None:
    """Return the format of a file or folder; None for a license, a readme or an empty folder."""
    with contextlib.suppress(ConfigError):
        return detect_format(place)
    return None


def _listed(names: Iterable[str]) -> str:
    """Return the first names, and how many more there are."""
    all_names: Sequence[str] = list(names)
    shown = ", ".join(all_names[:3])
    n_more = len(all_names) - 3
    if n_more > 0:
        return f"{shown} and {n_more} more"
    return shown
