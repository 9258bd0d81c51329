"""Finds the files of each split of a configuration, by the card of a repository or by their names.

The card's ``configs`` are described at https://huggingface.co/docs/hub/datasets-manual-configuration, names of files and folders
at https://huggingface.co/docs/hub/datasets-file-names-and-splits. Files come in the order of ``datasets``: pattern by pattern,
and sorted within a pattern.
"""

from __future__ import annotations

import bisect
import fnmatch
import glob
import mimetypes
import posixpath
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from data_stack.exception import CatalogueError, RevisionNotFoundError

_SHARD = re.compile(r"data/(\w+(?:\.\w+)*)-\d{5}-of-\d{5}[^/]*\.[^/]*")
_WORDS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "dev", "val"),
    "test": ("test", "testing", "eval", "evaluation"),
}
_MARK = "[-._ 0-9]"
_IN_FOLDER = (
    "**/{0}/**",
    f"**/{{0}}{_MARK}*/**",
    f"**/*{_MARK}{{0}}/**",
    f"**/*{_MARK}{{0}}{_MARK}*/**",
)
_IN_NAME = (f"**/{{0}}{_MARK}*", f"**/*{_MARK}{{0}}{_MARK}*")
#: Large splits are converted into several folders, ``train-part0``, ``train-part1`` and so on.
_CONVERTED = re.compile(r"([^/]+)/([^/]+?)(?:-part(\d+))?/\d{4,}\.parquet")
#: Files that are never data.
_OTHERS = frozenset(
    ("README.md", "config.json", "dataset_info.json", "dataset_infos.json", "dataset_dict.json")
)
#: Of the patterns of a card with the names of files; some seconds of work.
_MAX_COMPARISONS = 20_000_000
_METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")
_PARQUET = frozenset(("parquet", "geoparquet", "gpq"))
#: Endings of other files that hold samples, beside those of pictures, sound and videos.
_DATA = _PARQUET | {
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


def default_config(card: Mapping[str, Any]) -> str | None:
    """Return the default configuration of a card: the marked one, that of this name, or the only one; or None.

    Raises:
        CatalogueError: several are marked.
    """
    configs = card.get("configs") or ()
    names = [str(config.get("config_name", "default")) for config in configs]
    marked = [name for name, config in zip(names, configs, strict=True) if config.get("default")]
    if len(marked) > 1:
        raise CatalogueError(
            f"the card marks several configurations as the default ({', '.join(marked):.200}), which the package datasets "
            f"refuses, too: report it to its owner, or load one by its name: hf:OWNER/NAME#{marked[0]}"
        )
    if marked:
        return marked[0]
    if "default" in names:
        return "default"
    return names[0] if len(names) == 1 else None


def _choose(
    repo: str, part: str | None, known: Mapping[str, Any], default: str | None = None
) -> str:
    """Return the configuration ``part``, or the default one.

    Raises:
        RevisionNotFoundError: the configuration does not exist, or there are several and no default.
    """
    chosen = (
        part
        or (default if default in known else None)
        or (next(iter(known)) if len(known) == 1 else "default")
    )
    if chosen not in known:
        asked = f"no configuration {part!r:.80}" if part else "several configurations"
        raise RevisionNotFoundError(
            f"hf:{repo} has {asked}: load hf:{repo}#NAME, with one of {', '.join(sorted(known)[:50])}"
        )
    return chosen


def split_files(
    repo: str, card: Mapping[str, Any], paths: Iterable[str], part: str | None
) -> dict[str, list[str]]:
    """Return the Parquet files of each split of a configuration, in order; empty if it has other files.

    A file that several patterns of a split match is listed once.

    Args:
        repo: owner and name of the dataset.
        card: metadata of the README.
        paths: paths of all files.
        part: the configuration; None: the default one.

    Raises:
        RevisionNotFoundError: the configuration does not exist.
        CatalogueError: the ``configs`` of the card are damaged; or splits have files of different formats.
    """
    listed = sorted(path for path in paths if posixpath.basename(path) not in _OTHERS)
    if not any(path.endswith(".parquet") for path in listed):
        return {}
    try:
        configs = {
            str(each.get("config_name", "default")): each for each in card.get("configs") or [{}]
        }
        default = None if part else default_config(card)
        config = configs[_choose(repo, part, configs, default)]
        folder, given = posixpath.normpath(config.get("data_dir") or "."), config.get("data_files")
        found = (
            _by_names(listed, folder)
            if given is None
            else _by_card(listed, folder, _patterns_of(given))
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CatalogueError(
            f"the configs in the card of hf:{repo} are damaged ({error!s:.100}): report it to its owner"
        ) from error
    formats = {split: format_ for split, files in found.items() if (format_ := _format_of(files))}
    if len(set(formats.values())) > 1:
        listing = ", ".join(f"{split}: {format_}" for split, format_ in formats.items())
        raise CatalogueError(
            f"the splits of hf:{repo} have files of several formats ({listing}), which the package datasets refuses, too: "
            f"ask its owner to list files of one format under configs in the README"
        )
    if set(formats.values()) != {"parquet"}:
        return {}
    files = {
        split: [path for path in files if _ending_of(path) in _PARQUET]
        for split, files in found.items()
    }
    return {split: paths for split, paths in files.items() if paths}


def converted_files(
    repo: str, card: Mapping[str, Any], paths: Iterable[str], part: str | None
) -> dict[str, list[str]]:
    """Return the same for the Hub's branch of converted files, ``config/split/0000.parquet``.

    Splits are in the order of the card's ``dataset_info``; unlisted ones follow: ``train``, ``validation``, ``test``, others.

    Raises:
        RevisionNotFoundError: the configuration does not exist.
    """
    configs: dict[str, dict[str, list[str]]] = {}
    for match in sorted(
        filter(None, map(_CONVERTED.fullmatch, paths)),
        key=lambda each: (int(each[3] or 0), each[0]),
    ):
        configs.setdefault(match[1], {}).setdefault(match[2], []).append(match[0])
    if not configs:
        return {}
    try:
        default = None if part else default_config(card)
        chosen = _choose(repo, part, configs, default)
        listed = [str(each["name"]) for each in info_of(card, chosen).get("splits") or ()]
    except (AttributeError, KeyError, TypeError) as error:
        raise CatalogueError(
            f"the card of hf:{repo} is damaged ({error!s:.100}): report it to its owner"
        ) from error
    return {
        split: configs[chosen][split]
        for split in [*listed, *_in_order(configs[chosen])]
        if split in configs[chosen]
    }


def info_of(card: Mapping[str, Any], config: str | None) -> Mapping[str, Any]:
    """Return the ``dataset_info`` of a configuration, or its ``configs``, which may also have features; may be empty.

    Args:
        card: metadata of a README.
        config: None: the default one.
    """
    infos = card.get("dataset_info") or []
    known = {
        str(each.get("config_name", "default")): each
        for each in (infos if isinstance(infos, list) else [infos])
    }
    only = next(iter(known)) if len(known) == 1 else "default"
    chosen = config or default_config(card) or only
    configs = {str(each.get("config_name", "default")): each for each in card.get("configs") or ()}
    found: Mapping[str, Any] = known.get(chosen) or configs.get(chosen) or {}
    return found


def _in_order(splits: Iterable[str]) -> list[str]:
    """Sort splits as ``datasets`` does: the three known ones, then others by name."""
    known = list(_WORDS)
    return sorted(
        splits, key=lambda split: (known.index(split) if split in known else len(known), split)
    )


def _ending_of(path: str) -> str:
    return path.rpartition(".")[2].lower()


def _format_of(paths: Sequence[str]) -> str | None:
    """Return the format of most files, as ``datasets`` counts them: ``"parquet"``, another ending, or None."""
    names = [name for name in map(posixpath.basename, paths) if name not in _METADATA]
    endings = Counter(ending.lower() for name in names for ending in name.split(".")[1:])
    known = {ending: n for ending, n in endings.items() if ending in _DATA or _is_media(ending)}
    most = max(known, key=lambda ending: (known[ending], ending in _PARQUET, ending), default=None)
    return "parquet" if most in _PARQUET else most


def _is_media(ending: str) -> bool:
    return (mimetypes.guess_type(f"x.{ending}")[0] or "").partition("/")[0] in (
        "image",
        "audio",
        "video",
    )


def _patterns_of(given: Any) -> dict[str, list[str]]:
    """Return the patterns of each split in the ``data_files`` of a card."""
    listed = given if isinstance(given, list) else [given]
    found: dict[str, list[str]] = {}
    for each in listed:
        split, patterns = (
            (each["split"], each["path"]) if isinstance(each, dict) else ("train", each)
        )
        found.setdefault(str(split), []).extend(
            [patterns] if isinstance(patterns, str) else patterns
        )
    return found


def _by_patterns(
    paths: Sequence[str],
    folder: str,
    patterns: Mapping[str, Sequence[str]],
    max_comparisons: int | None = None,
) -> dict[str, list[str]]:
    """Return the files that match patterns below a folder, pattern by pattern; each once.

    A pattern without wildcards is looked up, and one with a fixed beginning is compared with the paths that begin so: a card may
    name 40,000 files one by one.

    Args:
        paths: of all files, sorted.
        folder: of the patterns.
        patterns: of each split.
        max_comparisons: the limit of comparisons of patterns with paths; None for patterns that are not a stranger's.

    Raises:
        ValueError: the patterns would take more comparisons.
    """
    whole_patterns = {
        split: [posixpath.normpath(posixpath.join(folder, pattern)) for pattern in listed]
        for split, listed in patterns.items()
    }
    n_comparisons = 0
    for listed in whole_patterns.values():
        n_comparisons += sum(len(_range_of(pattern, paths)) for pattern in listed)
    if max_comparisons is not None and n_comparisons > max_comparisons:
        raise ValueError(
            f"its patterns take more than {max_comparisons:,} comparisons with names of files"
        )
    known = frozenset(paths)
    files_of_split: dict[str, list[str]] = {}
    for split, listed in whole_patterns.items():
        taken: dict[str, None] = {}
        for pattern in listed:
            if not glob.has_magic(pattern):
                if pattern in known:
                    taken.setdefault(pattern)
                continue
            is_match = _matcher(pattern)
            for number in _range_of(pattern, paths):
                if is_match(paths[number]):
                    taken.setdefault(paths[number])
        files_of_split[split] = list(taken)
    return files_of_split


def _range_of(pattern: str, paths: Sequence[str]) -> range:
    """Return which of sorted paths begin with what precedes the first wildcard of a pattern; none without wildcards."""
    if not glob.has_magic(pattern):
        return range(0)
    beginning = re.split(r"[*?[]", pattern, maxsplit=1)[0]
    if pattern[len(beginning) :].startswith("**"):
        # "data/**" matches "data" too.
        beginning = beginning.rstrip("/")
    if not beginning:
        return range(len(paths))
    first = bisect.bisect_left(paths, beginning)
    end = bisect.bisect_left(paths, beginning + "\U0010ffff", lo=first)
    return range(first, end)


def _by_card(
    paths: Sequence[str], folder: str, patterns: Mapping[str, Sequence[str]]
) -> dict[str, list[str]]:
    """Return the files that match the patterns of a card.

    Raises:
        ValueError: a named file does not exist, or a split has no files.
    """
    found = _by_patterns(paths, folder, patterns, _MAX_COMPARISONS)
    known = frozenset(paths)
    names = [name for listed in patterns.values() for name in listed if not glob.has_magic(name)]
    missing = [
        name for name in names if posixpath.normpath(posixpath.join(folder, name)) not in known
    ]
    if missing:
        raise ValueError(f"the file {missing[0]!r:.80} does not exist")
    if empty := [split for split, files in found.items() if not files]:
        raise ValueError(f"no files match the patterns of {empty[0]!r:.80}")
    return found


def _matcher(pattern: str) -> Callable[[str], bool]:
    """Return a function that matches paths; hidden files, and folders such as __x__, must be named to match."""
    pattern = posixpath.normpath(pattern)
    parts, n_special = pattern.split("/"), _n_special(pattern)
    words = re.split("[*?]", re.sub(r"\[!?]?[^]]*]", "*", pattern))
    word = max((each.strip("/") for each in words), key=len)  # a fast check first
    return lambda path: word in path and _matches(path, parts) and _n_special(path) == n_special


def _n_special(path: str) -> tuple[int, int]:
    *folders, name = path.split("/")
    return sum(part.startswith(".") and part != "." for part in (*folders, name)), sum(
        part.startswith("__") for part in folders
    )


def _matches(path: str, parts: Sequence[str]) -> bool:
    """Whether a path matches a glob with ``**``, part by part; a regular expression for a hostile ``*a*a*a*b`` would hang."""
    parts = [*parts, "*"] if parts[-1] == "**" else parts
    reached = _after_folders({0}, parts)
    for name in path.split("/"):
        stay = {number for number in reached if number < len(parts) and parts[number] == "**"}
        step = {
            number + 1
            for number in reached - stay
            if number < len(parts) and fnmatch.fnmatchcase(name, parts[number])
        }
        reached = _after_folders(stay | step, parts)
    return len(parts) in reached


def _after_folders(reached: set[int], parts: Sequence[str]) -> set[int]:
    """Return the parts of a glob that can come next; ``**`` may also match no folder."""
    for number in range(min(reached, default=0), len(parts)):
        if number in reached and parts[number] == "**":
            reached.add(number + 1)
    return reached


def _by_names(paths: Sequence[str], folder: str) -> dict[str, list[str]]:
    """Return the files of each split by the names of files and folders, or all as ``train``."""
    start = "" if folder == "." else f"{folder}/"
    shards = {
        match[1]
        for path in paths
        if (match := _SHARD.fullmatch(path.removeprefix(start))) and path.startswith(start)
    }
    if shards:
        number = "[0-9]" * 5
        return _by_patterns(
            paths,
            folder,
            {split: [f"data/{split}-{number}-of-{number}*.*"] for split in _in_order(shards)},
        )
    for rules in (_IN_FOLDER, _IN_NAME):
        patterns = {
            split: [rule.format(word) for word in words for rule in rules]
            for split, words in _WORDS.items()
        }
        if found := {
            split: files for split, files in _by_patterns(paths, folder, patterns).items() if files
        }:
            return found
    return _by_patterns(paths, folder, {"train": ["**"]})
