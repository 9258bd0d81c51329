"""Finds the Parquet or Arrow files of each split of a configuration.

The card's ``configs`` are described at
https://huggingface.co/docs/hub/datasets-manual-configuration, names of files and folders at
https://huggingface.co/docs/hub/datasets-file-names-and-splits. Files come in the order of the
package ``datasets``: pattern by pattern, and sorted within a pattern.
"""

from __future__ import annotations

import glob
import mimetypes
import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from data_stack.exception import CatalogueError
from data_stack_huggingface.card import choose_config, configs_by_name, info_of_config
from data_stack_huggingface.path_patterns import find_files, join_path

#: Words in the names of files and folders, by their splits.
_WORDS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "dev", "val"),
    "test": ("test", "testing", "eval", "evaluation"),
}

#: What separates such a word from other words.
_SEPARATOR = "[-._ 0-9]"

#: Patterns of the files of a split, with {} for a word: the first ones find the word in the name of
#: a folder, the second ones in the name of a file.
_FOLDER_PATTERNS = (
    "**/{}/**",
    f"**/{{}}{_SEPARATOR}*/**",
    f"**/*{_SEPARATOR}{{}}/**",
    f"**/*{_SEPARATOR}{{}}{_SEPARATOR}*/**",
)
_NAME_PATTERNS = (f"**/{{}}{_SEPARATOR}*", f"**/*{_SEPARATOR}{{}}{_SEPARATOR}*")

#: A shard of a split, such as ``data/train-00000-of-00002.parquet``.
_SHARD = re.compile(r"data/(\w+(?:\.\w+)*)-\d{5}-of-\d{5}[^/]*\.[^/]*")

#: A file that the Hub has converted: configuration, split, number of the part. Large splits are
#: converted into several folders, ``train-part0``, ``train-part1`` and so on.
_CONVERTED_FILE = re.compile(
    r"(?P<config>[^/]+)/(?P<split>[^/]+?)(?:-part(?P<part>\d+))?/\d{4,}\.parquet"
)

#: Names of files that are never data.
_FILES_WITHOUT_DATA = frozenset(
    (
        "README.md",
        "config.json",
        "dataset_info.json",
        "dataset_infos.json",
        "dataset_dict.json",
        "state.json",
    )
)

#: Maximum number of comparisons of a card's patterns with the names of files: seconds of work.
_MAX_COMPARISONS = 20_000_000

#: Names of files that describe others, so that their format does not count.
_METADATA_FILES = ("metadata.csv", "metadata.jsonl", "metadata.parquet")

_PARQUET_ENDINGS = frozenset(("parquet", "geoparquet", "gpq"))

#: The endings of the formats that are read.
_ENDINGS_OF_FORMATS = {"parquet": _PARQUET_ENDINGS, "arrow": frozenset(("arrow",))}

#: Endings of files that hold samples, beside those of pictures, sound and videos.
_DATA_ENDINGS = _PARQUET_ENDINGS | {
    "csv",
    "tsv",
    "json",
    "jsonl",
    "ndjson",
    "arrow",
    "txt",
    "tar",
    "xml",
    "hdf5",
    "h5",
    "lance",
    "zip",
}
_MEDIA_TYPES = ("image", "audio", "video")


def split_files(
    repo: str, card: Mapping[str, Any], paths: Iterable[str], config_name: str | None
) -> dict[str, list[str]]:
    """Return the Parquet or Arrow files of each split of a configuration, in order.

    A file that several patterns of a split match is listed once.

    Args:
        repo: owner and name of the dataset.
        card: metadata of the README.
        paths: paths of all files.
        config_name: the configuration; None: the default one.

    Returns:
        Paths by split; empty if the configuration has files of another format.

    Raises:
        RevisionNotFoundError: the configuration does not exist.
        CatalogueError: the ``configs`` of the card are damaged; or splits have files of different
            formats.
    """
    data_paths = sorted(
        path for path in paths if posixpath.basename(path) not in _FILES_WITHOUT_DATA
    )
    if not any(path.endswith((".parquet", ".arrow")) for path in data_paths):
        return {}
    try:
        files_of_split = _files_of_config(repo, card, data_paths, config_name)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CatalogueError(
            f"the configs in the card of hf:{repo} are damaged ({error!s:.100}): report it to "
            f"its owner"
        ) from error
    endings = _ENDINGS_OF_FORMATS.get(_common_format(repo, files_of_split) or "")
    if endings is None:
        return {}

    files_of_format = {}
    for split, files in files_of_split.items():
        chosen_files = [path for path in files if _ending_of(path) in endings]
        if chosen_files:
            files_of_format[split] = chosen_files
    return files_of_format


def converted_files(
    repo: str, card: Mapping[str, Any], paths: Iterable[str], config_name: str | None
) -> dict[str, list[str]]:
    """Return the files of each split on the Hub's branch of converted files.

    They are named ``config/split/0000.parquet``. Splits are in the order of the card's
    ``dataset_info``; unlisted ones follow: ``train``, ``validation``, ``test``, others. The
    arguments are those of :func:`split_files`.

    Raises:
        RevisionNotFoundError: the configuration does not exist.
        CatalogueError: the card is damaged.
    """
    configs = _converted_configs(paths)
    if not configs:
        return {}
    try:
        config = choose_config(repo, config_name, configs, card)
        split_infos = info_of_config(card, config).get("splits") or ()
        listed_splits = [str(split_info["name"]) for split_info in split_infos]
    except (AttributeError, KeyError, TypeError) as error:
        raise CatalogueError(
            f"the card of hf:{repo} is damaged ({error!s:.100}): report it to its owner"
        ) from error

    files_of_split = configs[config]
    ordered_splits = [*listed_splits, *_in_order(files_of_split)]
    return {split: files_of_split[split] for split in ordered_splits if split in files_of_split}


def _converted_configs(paths: Iterable[str]) -> dict[str, dict[str, list[str]]]:
    """Return the converted files by configuration and split, part by part."""
    matches = []
    for path in paths:
        match = _CONVERTED_FILE.fullmatch(path)
        if match is not None:
            matches.append(match)
    matches.sort(key=_place_of_converted_file)

    configs: dict[str, dict[str, list[str]]] = {}
    for match in matches:
        files_of_split = configs.setdefault(match["config"], {})
        files_of_split.setdefault(match["split"], []).append(match[0])
    return configs


def _place_of_converted_file(match: re.Match[str]) -> tuple[int, str]:
    """Return what converted files are sorted by: the number of their part, and their path."""
    part = int(match["part"] or 0)
    return part, match[0]


def _in_order(splits: Iterable[str]) -> list[str]:
    """Sort splits as ``datasets`` does: the three known ones, then others by name."""
    known_splits = list(_WORDS)

    def place(split: str) -> tuple[int, str]:
        if split in known_splits:
            return known_splits.index(split), split
        return len(known_splits), split

    return sorted(splits, key=place)


# ----------------------------------------------------------------------------- files of the splits


def _files_of_config(
    repo: str, card: Mapping[str, Any], paths: Sequence[str], config_name: str | None
) -> dict[str, list[str]]:
    """Return the files of each split, of all formats.

    Raises:
        RevisionNotFoundError: the configuration does not exist.
        AttributeError, KeyError, TypeError, ValueError: the ``configs`` of the card are damaged.
    """
    configs = configs_by_name(card.get("configs") or [{}])
    config = configs[choose_config(repo, config_name, configs, card)]
    folder = posixpath.normpath(config.get("data_dir") or ".")
    data_files = config.get("data_files")
    if data_files is None:
        return _files_by_names(paths, folder)
    return _files_by_card(paths, folder, _patterns_of(data_files))


def _patterns_of(data_files: Any) -> dict[str, list[str]]:
    """Return the patterns of each split in the ``data_files`` of a card."""
    entries = data_files if isinstance(data_files, list) else [data_files]
    patterns_of_split: dict[str, list[str]] = {}
    for entry in entries:
        if isinstance(entry, dict):
            split = str(entry["split"])
            patterns = entry["path"]
        else:
            split = "train"
            patterns = entry
        if isinstance(patterns, str):
            patterns = [patterns]
        patterns_of_split.setdefault(split, []).extend(patterns)
    return patterns_of_split


def _files_by_card(
    paths: Sequence[str], folder: str, patterns_of_split: Mapping[str, Sequence[str]]
) -> dict[str, list[str]]:
    """Return the files that match the patterns of a card.

    Raises:
        ValueError: a named file does not exist, or a split has no files.
    """
    files_of_split = find_files(paths, folder, patterns_of_split, _MAX_COMPARISONS)
    known_paths = frozenset(paths)
    for patterns in patterns_of_split.values():
        for name in patterns:
            if not glob.has_magic(name) and join_path(folder, name) not in known_paths:
                raise ValueError(f"the file {name!r:.80} does not exist")
    for split, files in files_of_split.items():
        if not files:
            raise ValueError(f"no files match the patterns of {split!r:.80}")
    return files_of_split


def _files_by_names(paths: Sequence[str], folder: str) -> dict[str, list[str]]:
    """Return the files of each split by the names of files and folders.

    Shards take precedence over names of folders, and these over names of files. Where no name says
    a split, all files are ``train``.
    """
    splits_of_shards = _splits_of_shards(paths, folder)
    if splits_of_shards:
        five_digits = "[0-9]" * 5
        patterns = {}
        for split in _in_order(splits_of_shards):
            patterns[split] = [f"data/{split}-{five_digits}-of-{five_digits}*.*"]
        return find_files(paths, folder, patterns)

    for patterns_with_word in (_FOLDER_PATTERNS, _NAME_PATTERNS):
        patterns = {}
        for split, words in _WORDS.items():
            patterns[split] = []
            for word in words:
                patterns[split].extend(pattern.format(word) for pattern in patterns_with_word)
        files_of_split = find_files(paths, folder, patterns)
        found_splits = {split: files for split, files in files_of_split.items() if files}
        if found_splits:
            return found_splits

    return find_files(paths, folder, {"train": ["**"]})


def _splits_of_shards(paths: Sequence[str], folder: str) -> set[str]:
    """Return the splits of the files below a folder that are named as shards."""
    start = "" if folder == "." else f"{folder}/"
    splits = set()
    for path in paths:
        if path.startswith(start):
            match = _SHARD.fullmatch(path.removeprefix(start))
            if match is not None:
                splits.add(match[1])
    return splits


# --------------------------------------------------------------------------------- their formats


def _common_format(repo: str, files_of_split: Mapping[str, Sequence[str]]) -> str | None:
    """Return the format of the files of all splits; None if no split has a known one.

    Raises:
        CatalogueError: splits have different formats.
    """
    formats = {}
    for split, files in files_of_split.items():
        format_name = _format_of(files)
        if format_name is not None:
            formats[split] = format_name
    if len(set(formats.values())) > 1:
        listing = ", ".join(f"{split}: {format_name}" for split, format_name in formats.items())
        raise CatalogueError(
            f"the splits of hf:{repo} have files of several formats ({listing}), which the "
            f"package datasets refuses, too: ask its owner to list files of one format under "
            f"configs in the README"
        )
    return next(iter(formats.values()), None)


def _format_of(paths: Sequence[str]) -> str | None:
    """Return the format of most files, as ``datasets`` counts them.

    Returns:
        ``"parquet"``, another ending, or None if no ending is known.
    """
    counts: Counter[str] = Counter()
    for path in paths:
        name = posixpath.basename(path)
        if name not in _METADATA_FILES:
            counts.update(name.lower().split(".")[1:])
    endings = [ending for ending in counts if _is_of_data(ending)]
    if not endings:
        return None

    def rank(ending: str) -> tuple[int, bool, str]:
        # Of equal counts, Parquet decides, and then the last ending of the alphabet.
        return counts[ending], ending in _PARQUET_ENDINGS, ending

    most_frequent = max(endings, key=rank)
    if most_frequent in _PARQUET_ENDINGS:
        return "parquet"
    return most_frequent


def _ending_of(path: str) -> str:
    """Return the last ending of a path, in lower case, without its dot."""
    return path.rpartition(".")[2].lower()


def _is_of_data(ending: str) -> bool:
    """Return whether files with an ending hold samples."""
    if ending in _DATA_ENDINGS:
        return True
    media_type, _ = mimetypes.guess_type(f"x.{ending}")
    return media_type is not None and media_type.partition("/")[0] in _MEDIA_TYPES
