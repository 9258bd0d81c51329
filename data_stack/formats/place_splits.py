"""Finds the datasets at a place: itself, or the splits that its files and folders are."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from data_stack.exception import ConfigError
from data_stack.formats.conversion.formats import (
    COMPRESSED,
    FORMATS,
    PARQUET_NAMES,
    find_format,
)
from data_stack.formats.conversion.formats import format_of_name as known_format
from data_stack.formats.image_folder import METADATA_OF_IMAGES, holds_images
from data_stack.formats.records.layout import SPEC
from data_stack.formats.split_names import (
    differ_in_numbers_only,
    group_by_split,
    in_order_of_numbers,
    in_order_of_splits,
    split_of,
)
from data_stack.formats.webdataset import SHARD_INDEX
from data_stack.io.folder import Folder
from data_stack.io.location import Location
from data_stack.util.suggestions import did_you_mean

#: The Hub's layout: a README, and the splits in this folder.
_DATA_FOLDER: Final = "data"
#: Each of these in a folder says that all of it is one dataset, and lists its files.
_MARKS_OF_ONE_DATASET: Final = PARQUET_NAMES | {SPEC, SHARD_INDEX}
#: Files beside a dataset that are never its samples: code, texts for readers, settings, logs, checksums, indexes of shards.
_NEVER_SAMPLES: Final = frozenset(
    (
        *(".py", ".ipynb", ".sh", ".bat", ".r", ".m", ".c", ".cpp", ".h", ".js", ".css"),
        *(".md", ".rst", ".html", ".htm", ".pdf", ".tex", ".bib", ".license", ".lock"),
        *(".yaml", ".yml", ".toml", ".cfg", ".ini", ".log", ".out", ".err", ".bak", ".tmp"),
        *(".md5", ".sha1", ".sha256", ".crc", ".asc", ".sig", ".idx", ".index"),
    )
)


@dataclass(frozen=True)
class DatasetFiles:
    """The files of one dataset at a place: of the place itself, or of one of its splits.

    Attributes:
        kind: the name of their format.
        parts: the files or folders, whose samples follow one another.
        is_place: whether the dataset is the place itself, which then has no splits.
        is_split: whether a name for a split is what makes it one; otherwise it is a file or folder beside others.
    """

    kind: str
    parts: tuple[Location, ...]
    is_place: bool = False
    is_split: bool = False

    @property
    def name(self) -> str:
        """The name of the first file or folder, for messages."""
        others = f" and {len(self.parts) - 1} more" if len(self.parts) > 1 else ""
        return f"{self.parts[0].name}{others}"


def find_places(place: Location, kind: str | None = None) -> dict[str, DatasetFiles]:
    """The datasets at a place by the names of their splits: itself, or those in a folder.

    The names of files and folders decide, by the rule of :mod:`data_stack.formats.split_names`; the splits lie in the folder, or
    in the folder ``data`` in it.

    Args:
        place: a file or folder.
        kind: the name of its format; None to detect it.

    Raises:
        ConfigError: the place is empty, its format is not recognised, it holds datasets of several formats, or a file that is
            named as a split has no known format.
    """
    if kind is not None and kind not in FORMATS:
        raise ConfigError(
            f"unknown format {kind!r:.40}{did_you_mean(kind, FORMATS)}; known formats: {', '.join(FORMATS)}"
        )
    splits = find_splits(place, kind)
    if splits:
        return splits
    if kind is not None:
        return {place.name: DatasetFiles(kind, (place,), is_place=True)}
    advice = f"say which it is: format= one of {', '.join(FORMATS)}"
    try:
        found = find_format_of(place, advice)
    except ConfigError as error:
        refused = error
    else:
        return {place.name: DatasetFiles(found, (place,), is_place=True)}
    datasets = _find_datasets_beside(place)
    if not datasets:
        raise refused
    return datasets


def format_of_name(name: str) -> str | None:
    """The format of a file by the suffix of its name; None if the suffix is unknown."""
    known = known_format(name)
    return None if known is None else known.name


def stem_of_name(name: str) -> str:
    """The name of a file without the suffix of its format; another name as it is: ``a.b`` of ``a.b.csv.gz``, and of ``a.b``."""
    if format_of_name(name) is None:
        return name
    return os.path.splitext(COMPRESSED.sub("", name))[0]


def find_format_of(place: Location, advice: str = "") -> str:
    """The format of a file by its name, or of a folder by its contents.

    Raises:
        ConfigError: nothing is there, or no format or several formats fit; ``advice`` ends the message.
    """
    known = format_of_name(place.name)
    return known if known is not None and place.is_file() else find_format(place, advice)


# ---------------------------------------------------------------------- splits


def find_splits(place: Location, kind: str | None = None) -> dict[str, DatasetFiles]:
    """The splits in a folder, or in the folder ``data`` in it; empty if it is one dataset, or a file.

    Args and Raises as for :func:`find_places`.
    """
    folder = place.as_folder()
    names = _visible_names(place)
    if not _MARKS_OF_ONE_DATASET.isdisjoint(names):
        return {}
    splits = _find_splits(folder, names, kind)
    if splits:
        return _as_one_if_named_alike(place, splits)
    if _DATA_FOLDER not in names:
        return {}
    data = Location(folder, _DATA_FOLDER)
    names_in_data = _visible_names(data)
    if not _MARKS_OF_ONE_DATASET.isdisjoint(names_in_data):
        return {}
    return _find_splits(data.as_folder(), names_in_data, kind)


def _as_one_if_named_alike(
    place: Location, splits: dict[str, DatasetFiles]
) -> dict[str, DatasetFiles]:
    """A folder ``train`` of ``train-000000.tar`` and so on is one dataset, the split that its name says."""
    said = split_of(place.name)
    if len(splits) == 1 and said is not None and said.split in splits:
        return {place.name: replace(splits[said.split], is_place=True)}
    return splits


def _visible_names(place: Location) -> list[str]:
    """The names in a folder that are not hidden; none of a file, or where the store cannot list."""
    folder = place.as_folder()
    if not folder.can_delete or (format_of_name(place.name) is not None and place.is_file()):
        return []
    return [name for name in folder.list_names() if not name.startswith(".")]


def _find_splits(folder: Folder, names: list[str], kind: str | None) -> dict[str, DatasetFiles]:
    """The splits in a folder by the names of what holds samples; empty if no name says a split."""
    said = {name: split_of(stem_of_name(name)) for name in names}
    candidates = {name: split for name, split in said.items() if split is not None}
    has_exact = any(split.is_exact for split in candidates.values())
    if not has_exact and len({split.purpose for split in candidates.values()}) < 2:
        return {}
    parts: dict[str, DatasetFiles] = {}
    for name in candidates:
        files = _files_of_entry(Location(folder, name), kind)
        if files is not None:
            parts[name] = files
    if not parts:
        return {}
    others = [name for name in names if name not in candidates]
    for name in others:
        found = _format_or_none(Location(folder, name))
        if found is not None and kind in (None, found):
            parts[name] = DatasetFiles(found, (Location(folder, name),))
    if any(files.kind == "images" for files in parts.values()):
        # The metadata of the pictures of all splits are no split.
        parts = {name: files for name, files in parts.items() if name not in METADATA_OF_IMAGES}
    if any(files.kind != "bin" for files in parts.values()):
        # Beside files of another format, a .bin file may hold anything.
        parts = {name: files for name, files in parts.items() if files.kind != "bin"}
    groups = group_by_split({name: stem_of_name(name) for name in parts})
    if not groups or _are_classes(folder, parts):
        return {}
    splits: dict[str, DatasetFiles] = {}
    for split, members in groups.items():
        kinds = {parts[name].kind for name in members}
        if len(kinds) > 1:
            raise _several_formats(folder, {name: parts[name].kind for name in parts})
        locations = tuple(location for name in members for location in parts[name].parts)
        splits[split] = DatasetFiles(
            kinds.pop(), locations, is_split=any(name in candidates for name in members)
        )
    _check_one_format(folder, splits)
    _check_no_split_is_lost(folder, names, splits, kind)
    return splits


def _files_of_entry(entry: Location, kind: str | None) -> DatasetFiles | None:
    """The files of a file or folder that is named as a split; None if it holds no samples of the format.

    Raises:
        ConfigError: it is a folder of files that are not the parts of one dataset.
    """
    found = _format_or_none(entry)
    if found is not None:
        return DatasetFiles(found, (entry,)) if kind in (None, found) else None
    folder = entry.as_folder()
    files: dict[str, str] = {}
    for name in sorted(_visible_names(entry), key=in_order_of_numbers):
        format_name = format_of_name(name)
        if format_name is not None and kind in (None, format_name):
            files[name] = format_name
    if not files:
        return None
    if len(set(files.values())) > 1:
        raise _several_formats(folder, files)
    if not differ_in_numbers_only(map(stem_of_name, files)):
        raise ConfigError(
            f"{entry.full_name} is named as a split, but its files {_listed(files)} are not parts of one "
            f"dataset, whose names differ in their numbers only; load each by its own path"
        )
    return DatasetFiles(next(iter(files.values())), tuple(Location(folder, name) for name in files))


def _are_classes(folder: Folder, parts: Mapping[str, DatasetFiles]) -> bool:
    """Whether folders of pictures are classes, one of which happens to have the name of a split: bus, car, train.

    It is a class if it holds pictures itself, and no other folder is named as a split.
    """
    if any(files.kind != "images" for files in parts.values()):
        return False
    splits = [said for said in map(split_of, parts) if said is not None and said.is_exact]
    if len(splits) != 1 or len(parts) == 1:
        return False
    return all(
        holds_images(folder.subfolder(name).list_names())
        for name in parts
        if split_of(name) in splits
    )


def _check_one_format(folder: Folder, splits: Mapping[str, DatasetFiles]) -> None:
    if len({files.kind for files in splits.values()}) > 1:
        raise _several_formats(folder, {files.name: files.kind for files in splits.values()})


def _several_formats(folder: Folder, kinds: Mapping[str, str]) -> ConfigError:
    held = ", ".join(f"{name} ({kind})" for name, kind in list(kinds.items())[:20])
    return ConfigError(
        f"{folder.describe('').rstrip('/')} holds datasets of several formats: {held}; name one of them"
    )


def _check_no_split_is_lost(
    folder: Folder, names: Iterable[str], splits: Mapping[str, DatasetFiles], kind: str | None
) -> None:
    """Check that each file that is named as a split is read, or another file of that split is.

    Raises:
        ConfigError: the samples of a split would be left out.
    """
    read = {part.name for files in splits.values() for part in files.parts}
    for name in names:
        if name in read or kind is not None:
            continue
        stem, suffix = os.path.splitext(COMPRESSED.sub("", name))
        said = split_of(stem)
        is_of_samples = suffix and suffix.lower() not in _NEVER_SAMPLES
        if said is None or not said.is_exact or said.split in splits or not is_of_samples:
            continue
        if format_of_name(name) == "bin" or not folder.has_file(name):
            continue
        others = _listed(sorted(read))
        raise ConfigError(
            f"{folder.full_name(name)} is named as a split, but its suffix {suffix!r:.20} is of no known format; "
            f"convert it to that of {others}, or load {others} by path"
        )


# ---------------------------------------------------------------------- datasets without names of splits


def _find_datasets_beside(place: Location) -> dict[str, DatasetFiles]:
    """The datasets in a folder that is not one itself, by their names; folders of pictures are the classes of one dataset.

    Raises:
        ConfigError: they are of several formats.
    """
    folder = place.as_folder()
    kinds: dict[str, str] = {}
    for name in in_order_of_splits(folder.list_names()):
        found = _format_or_none(Location(folder, name))
        if found is not None:  # otherwise it is a license or a readme
            kinds[name] = found
    # Beside files of another format, a .bin file may hold anything.
    named = [name for name, kind in kinds.items() if kind != "bin"] or list(kinds)
    if named and all(kinds[name] == "images" for name in named):
        return {place.name: DatasetFiles("images", (place,), is_place=True)}
    datasets: dict[str, DatasetFiles] = {}
    for name in named:
        stem = stem_of_name(name)
        datasets[name if stem in datasets else stem] = DatasetFiles(
            kinds[name], (Location(folder, name),)
        )
    _check_one_format(folder, datasets)
    return datasets


def _format_or_none(place: Location) -> str | None:
    with contextlib.suppress(ConfigError):  # it is a license, a readme, an empty folder
        return find_format_of(place)
    return None


def _listed(names: Iterable[str]) -> str:
    """The first names, and how many there are."""
    given = list(names)
    more = f" and {len(given) - 3} more" if len(given) > 3 else ""
    return ", ".join(given[:3]) + more
