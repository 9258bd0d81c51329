"""Decides which files and folders of a place are its splits, by their names.

The rule is one for all formats, and a pure function of the names
(``docs/reference/splits_and_classes.md``, Splits):

- *Names of splits* are train, training, val, valid, validation, dev, test, testing, eval and
  evaluation, in small or capital letters, followed by nothing or by the number of a part:
  ``train``, ``train-00000-of-00005``, ``train.0``, ``train_part1``. The parts of one split are one
  dataset, in the order of their numbers.
- In a place with such names, every other file or folder with samples is a split of its own name.
- Names that only *contain* such a word, such as ``mnist_train`` and ``mnist_test``, or
  ``train2017`` and ``val2017``, are splits of the whole name if all names of the place do, and if
  the words differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from data_stack.exception import LeftOutWarning
from data_stack.util.program_lines import warn_program

#: The purpose of each word. A place with ``val`` and ``valid`` only has splits of one purpose.
PURPOSES: Final[Mapping[str, str]] = {
    "train": "train",
    "training": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "dev": "validation",
    "test": "test",
    "testing": "test",
    "eval": "test",
    "evaluation": "test",
}

# Longer words come first, so that "training" is not read as "train" and something else.
_WORD: Final = "|".join(sorted(PURPOSES, key=len, reverse=True))

#: What stands between the words of a name.
_MARK: Final = "[-_. ]"

#: ``-00000-of-00005``, ``.0``, ``_part1``, ``-part-3``; the Hub once appended a digest,
#: ``-00000-of-00001-9b8c7d6e5f``.
_PART_WITH_WORD: Final = (
    rf"{_MARK}(?:part|shard|chunk){_MARK}?[0-9]+(?:{_MARK}?of{_MARK}?[0-9]+)?"
    rf"|{_MARK}[0-9]+{_MARK}?of{_MARK}?[0-9]+(?:-[0-9a-f]{{6,}})?"
)

#: The number of a part after a name that is nothing but a word.
_PART: Final = rf"{_PART_WITH_WORD}|{_MARK}[0-9]+"

#: In a name that only contains a word, a short number is part of the name: LibriSpeech has
#: ``train-clean-100`` and ``-360``.
_LONG_PART: Final = rf"{_MARK}(?:0[0-9]+|[0-9]{{4,}})|{_PART_WITH_WORD}"

#: A name that is nothing but a word and the number of a part.
_EXACT: Final = re.compile(rf"(?P<word>{_WORD})(?P<part>(?:{_PART})*)", re.IGNORECASE)

#: A name that contains a word.
_LOOSE: Final = re.compile(
    rf"(?:.*{_MARK})?(?P<word>{_WORD})(?=$|{_MARK}|[0-9]).*?(?P<part>(?:{_LONG_PART})*)",
    re.IGNORECASE,
)

#: The number of a part and the number of all parts, such as ``00001-of-00003``. Digests of parts,
#: which the Hub once appended, differ from part to part.
_PART_OF_ALL: Final = re.compile(
    r"(?P<before>.*?)(?<![0-9])(?P<number>[0-9]{1,9})"
    r"(?P<of>[-_.]of[-_.](?P<n_parts>[0-9]{1,9}))(?![0-9])"
    r"(?:-[0-9a-f]{6,})?(?P<after>.*)",
    re.IGNORECASE | re.DOTALL,
)

#: A text without digits, and the digits that follow it.
_TEXT_AND_NUMBER: Final = re.compile(r"([^0-9]*)([0-9]*)")

#: Numbers with more digits are not compared as numbers: one of a million takes minutes to convert.
_MAX_DIGITS: Final = 1000

#: The maximum number of splits that a warning names.
_MAX_SHOWN_SPLITS: Final = 5


@dataclass(frozen=True)
class SplitName:
    """What the name of a file or folder says of its split.

    Attributes:
        split: the name of the split, in the letters of the file or folder.
        purpose: ``"train"``, ``"validation"`` or ``"test"``.
        is_exact: whether nothing but a word and the number of a part is in the name.
    """

    split: str
    purpose: str
    is_exact: bool


def split_of(stem: str) -> SplitName | None:
    """Return the split that a name says; None if no word for a split is in it.

    Args:
        stem: the name of a folder; or of a file, without the suffix of its format.
    """
    exact = _EXACT.fullmatch(stem)
    if exact is not None:
        word = exact["word"]
        return SplitName(word, PURPOSES[word.lower()], is_exact=True)
    loose = _LOOSE.fullmatch(stem)
    if loose is None:
        return None
    name_without_part = stem.removesuffix(loose["part"])
    return SplitName(name_without_part, PURPOSES[loose["word"].lower()], is_exact=False)


def group_by_split(stems: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the names of a place by split; nothing if the place has no splits.

    Splits are in alphabetical order, those for training first. The parts of a split are in the
    order of the numbers in their names.

    Args:
        stems: the name of each file and folder that holds samples, by its whole name: without the
            suffix of its format.
    """
    split_names = {name: split_of(stem) for name, stem in stems.items()}
    has_exact_name = any(
        split_name is not None and split_name.is_exact for split_name in split_names.values()
    )
    if not has_exact_name and not _are_all_splits(split_names.values()):
        return {}
    groups: dict[str, list[str]] = {}
    for name in sorted(stems, key=in_order_of_numbers):
        split_name = split_names[name]
        if split_name is None or (has_exact_name and not split_name.is_exact):
            # Beside splits, every other file or folder is a split of its own name.
            split = stems[name]
        else:
            split = split_name.split
        groups.setdefault(split, []).append(name)
    return {split: groups[split] for split in in_order_of_splits(groups)}


def _are_all_splits(split_names: Iterable[SplitName | None]) -> bool:
    """Return whether all names contain a word for a split, and the words differ in purpose."""
    purposes = set()
    for split_name in split_names:
        if split_name is None:
            return False
        purposes.add(split_name.purpose)
    return len(purposes) > 1


def warn_of_splits(name: str, stems: Mapping[str, str], advice: str) -> None:
    """Warn that files or folders that are named as splits are read as one dataset.

    Args:
        name: the name of the dataset.
        stems: as for :func:`group_by_split`.
        advice: how to read one split.
    """
    split_names = [split_of(stem) for stem in stems.values()]
    purposes = {split_name.purpose for split_name in split_names if split_name is not None}
    splits = list(group_by_split(stems))
    if len(purposes) > 1 and len(splits) > 1:
        shown_splits = ", ".join(splits[:_MAX_SHOWN_SPLITS])
        warn_program(
            f"{name} is read as one dataset, but its names are those of the splits "
            f"{shown_splits}; {advice}, or data_stack.load(folder)"
        )


def find_incomplete_parts(names: Iterable[str]) -> list[str]:
    """Return which parts are not all there, as their names count them.

    Args:
        names: the names of files and folders in one place.

    Returns:
        A text such as ``1 of 2 'train-*-of-00002.csv'`` for each incomplete series of parts.
    """
    numbers_by_series: dict[tuple[str, int], set[int]] = {}
    for name in names:
        match = _PART_OF_ALL.fullmatch(name)
        if match is not None:
            pattern = f"{match['before']}*{match['of']}{match['after']}"
            series = (pattern, int(match["n_parts"]))
            numbers_by_series.setdefault(series, set()).add(int(match["number"]))
    incomplete = []
    for (pattern, n_parts), numbers in numbers_by_series.items():
        if len(numbers) < n_parts:
            incomplete.append(f"{len(numbers):,} of {n_parts:,} {pattern!r}")
    return incomplete


def warn_of_missing_parts(place: str, names: Iterable[str]) -> None:
    """Warn if parts of a place are missing, as after a download that was interrupted.

    Args:
        place: the name of the place.
        names: the names of the files and folders in it.
    """
    incomplete = find_incomplete_parts(names)
    if not incomplete:
        return
    shown_parts = ", ".join(incomplete[:_MAX_SHOWN_SPLITS])
    warn_program(
        f"{place} has only {shown_parts}, which are read without the others. Fetch these, or load "
        "the files that you want by their own names",
        LeftOutWarning,
    )


def in_order_of_splits(splits: Iterable[str]) -> list[str]:
    """Return splits in alphabetical order, those whose names begin with ``train`` first."""
    return sorted(splits, key=lambda split: (not split.lower().startswith("train"), split))


def in_order_of_numbers(name: str) -> tuple[tuple[str, int, str], ...]:
    """Return a key that sorts names by the numbers in them: ``part2`` before ``part10``."""
    pieces = []
    for match in _TEXT_AND_NUMBER.finditer(name):
        text, digits = match.groups()
        number = 0
        if 0 < len(digits) <= _MAX_DIGITS:
            number = int(digits)
        pieces.append((text, number, digits))
    return tuple(pieces)


def differ_in_numbers_only(stems: Iterable[str]) -> bool:
    """Return whether names are alike except for the digits in them, as those of parts are."""
    return len({re.sub(r"[0-9]+", "0", stem) for stem in stems}) <= 1
