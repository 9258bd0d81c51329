"""Which files of a repository are the splits of a configuration: as its card says, or by their names.

The card's ``configs`` are described at https://huggingface.co/docs/hub/datasets-manual-configuration, names of files and folders
at https://huggingface.co/docs/hub/datasets-file-names-and-splits.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from data_stack.exception import CatalogueError, RevisionNotFoundError
from data_stack.util.suggestions import did_you_mean

_SHARD = re.compile(r"data/(\w+(?:\.\w+)*)-\d{5}-of-\d{5}[^/]*\.[^/]*")
_WORDS = {"train": "train|training", "validation": "validation|valid|dev|val", "test": "test|testing|eval|evaluation"}
_MARK = r"[-._ 0-9]"
_IN_FOLDER = {split: re.compile(rf"(.*/)?([^/]*{_MARK})?({words})({_MARK}[^/]*)?/.*") for split, words in _WORDS.items()}
_IN_NAME = {split: re.compile(rf"(.*/)?([^/]*{_MARK})?({words}){_MARK}[^/]*") for split, words in _WORDS.items()}
_CONVERTED = re.compile(r"([^/]+)/([^/]+)/\d{4,}\.parquet")


def _choose(repo: str, part: str | None, known: Mapping[str, Any], default: str | None = None) -> str:
    """The configuration that is asked for: ``part``, or else the default one.

    Raises:
        RevisionNotFoundError: there is none of that name, or several and no default.
    """
    chosen = part or default or (next(iter(known)) if len(known) == 1 else "default")
    if chosen not in known:
        asked = f"no configuration {part!r:.80}{did_you_mean(part, known)}" if part else "several configurations"
        raise RevisionNotFoundError(f"hf:{repo} has {asked}: load hf:{repo}#NAME, with one of {', '.join(sorted(known)[:50])}")
    return chosen


def split_files(repo: str, card: Mapping[str, Any], paths: Iterable[str], part: str | None) -> dict[str, list[str]]:
    """The Parquet files of each split of a configuration, in their order; empty if its files are others.

    Args:
        repo: owner and name of the dataset.
        card: the metadata of its README.
        paths: of all files.
        part: the configuration; None for the default one.

    Raises:
        RevisionNotFoundError: there is no such configuration.
        CatalogueError: the card's ``configs`` are damaged.
    """
    visible = sorted(path for path in paths if not re.search(r"(^|/)(\.|__)", path))
    if not any(path.endswith(".parquet") for path in visible):
        return {}
    try:
        configs = {str(each.get("config_name", "default")): each for each in card.get("configs") or [{}]}
        default = next((name for name, each in configs.items() if each.get("default")), None)
        config = configs[_choose(repo, part, configs, default)]
        folder, given = posixpath.normpath(config.get("data_dir") or "."), config.get("data_files")
        found = _by_names(visible, folder) if given is None else _by_patterns(visible, folder, given)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CatalogueError(f"the configs in the card of hf:{repo} are damaged ({error!s:.100}): tell its owner") from error
    files = {split: [path for path in files if path.endswith(".parquet")] for split, files in found.items()}
    return {split: paths for split, paths in files.items() if paths}


def converted_files(repo: str, paths: Iterable[str], part: str | None) -> dict[str, list[str]]:
    """The same of the branch with Parquet that the Hub makes of other files, ``config/split/0000.parquet``.

    Raises:
        RevisionNotFoundError: there is no such configuration.
    """
    configs: dict[str, dict[str, list[str]]] = {}
    for path in sorted(paths):
        if match := _CONVERTED.fullmatch(path):
            configs.setdefault(match[1], {}).setdefault(match[2], []).append(path)
    return configs[_choose(repo, part, configs)] if configs else {}


def _by_patterns(paths: Sequence[str], folder: str, given: Any) -> dict[str, list[str]]:
    """The files that the patterns of a card match."""
    listed = given if isinstance(given, list) else [given]
    splits = [(each["split"], each["path"]) if isinstance(each, dict) else ("train", each) for each in listed]
    found: dict[str, dict[str, None]] = {}
    for split, patterns in splits:
        for pattern in [patterns] if isinstance(patterns, str) else patterns:
            parts = posixpath.normpath(posixpath.join(folder, pattern)).split("/")
            found.setdefault(str(split), {}).update(dict.fromkeys(path for path in paths if _matches(path, parts)))
    return {split: list(files) for split, files in found.items()}


def _matches(path: str, parts: Sequence[str]) -> bool:
    """Whether a path matches a glob with ``**``, part by part: a regular expression of a hostile ``*a*a*a*b`` would not end."""
    parts = [*parts, "*"] if parts[-1] == "**" else parts
    reached = _after_folders({0}, parts)
    for name in path.split("/"):
        stay = {number for number in reached if number < len(parts) and parts[number] == "**"}
        step = {number + 1 for number in reached - stay if number < len(parts) and fnmatch.fnmatchcase(name, parts[number])}
        reached = _after_folders(stay | step, parts)
    return len(parts) in reached


def _after_folders(reached: set[int], parts: Sequence[str]) -> set[int]:
    """The parts of a glob that can come next, where ``**`` may also stand for no folder."""
    for number in range(min(reached, default=0), len(parts)):
        if number in reached and parts[number] == "**":
            reached.add(number + 1)
    return reached


def _by_names(paths: Sequence[str], folder: str) -> dict[str, list[str]]:
    """The files of each split by the names of files and folders, else all as ``train``."""
    start = "" if folder == "." else f"{folder}/"
    names = [path.removeprefix(start) for path in paths if path.startswith(start)]
    found: dict[str, list[str]] = {split: [] for split in _WORDS}
    for name in names:
        if match := _SHARD.fullmatch(name):
            found.setdefault(match[1], []).append(name)
    for rules in (_IN_FOLDER, _IN_NAME):
        if not any(found.values()):
            found = {split: list(filter(rule.fullmatch, names)) for split, rule in rules.items()}
    found = {split: files for split, files in found.items() if files} or {"train": names}
    return {split: [start + name for name in files] for split, files in found.items()}
