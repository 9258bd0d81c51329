"""Says which files and folders of a place are its splits, by their names.

The rule is one for all formats, and a pure function of the names (``docs/what_is_read.md``, Splits):

- *Names of splits* are train, training, val, valid, validation, dev, test, testing, eval and evaluation, in small or capital
  letters, followed by nothing or by the number of a part: ``train``, ``train-00000-of-00005``, ``train.0``, ``train_part1``.
  The parts of one split are one dataset, in the order of their numbers.
- In a place with such names, every other file or folder with samples is a split of its own name.
- Names that only *contain* such a word, such as ``mnist_train`` and ``mnist_test``, or ``train2017`` and ``val2017``, are splits
  of the whole name if all names of the place do, and if the words differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from data_stack.util.program_lines import warn_program

#: The words for one purpose are one: a place with ``val`` and ``valid`` only has splits of one purpose.
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
_MARK: Final = "[-_. ]"
#: ``-00000-of-00005``, ``.0``, ``_part1``, ``-part-3``; the Hub once appended a digest, ``-00000-of-00001-9b8c7d6e5f``.
_PART_WITH_WORD: Final = (
    rf"{_MARK}(?:part|shard|chunk){_MARK}?[0-9]+(?:{_MARK}?of{_MARK}?[0-9]+)?"
    rf"|{_MARK}[0-9]+{_MARK}?of{_MARK}?[0-9]+(?:-[0-9a-f]{{6,}})?"
)
_PART: Final = rf"{_PART_WITH_WORD}|{_MARK}[0-9]+"
#: In a name that only contains a word, a short number is part of the name: LibriSpeech has ``train-clean-100`` and ``-360``.
_LONG_PART: Final = rf"{_MARK}(?:0[0-9]+|[0-9]{{4,}})|{_PART_WITH_WORD}"
_EXACT: Final = re.compile(rf"(?P<word>{_WORD})(?P<part>(?:{_PART})*)", re.IGNORECASE)
_LOOSE: Final = re.compile(
    rf"(?:.*{_MARK})?(?P<word>{_WORD})(?=$|{_MARK}|[0-9]).*?(?P<part>(?:{_LONG_PART})*)",
    re.IGNORECASE,
)


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
    """The split that a name says; None if no word for a split is in it.

    Args:
        stem: the name of a folder; or of a file, without the suffix of its format.
    """
    exact = _EXACT.fullmatch(stem)
    if exact is not None:
        return SplitName(exact["word"], PURPOSES[exact["word"].lower()], is_exact=True)
    loose = _LOOSE.fullmatch(stem)
    if loose is None:
        return None
    whole = stem[: len(stem) - len(loose["part"])]
    return SplitName(whole, PURPOSES[loose["word"].lower()], is_exact=False)


def group_by_split(stems: Mapping[str, str]) -> dict[str, list[str]]:
    """The names of a place by split; empty if they are no splits.

    Splits are in alphabetical order, those for training first. The parts of a split are in the order of the numbers in their
    names.

    Args:
        stems: of each file and folder that holds samples, its name without the suffix of its format.
    """
    named = {name: split_of(stem) for name, stem in stems.items()}
    is_exact = any(said is not None and said.is_exact for said in named.values())
    if not is_exact:
        purposes = {None if said is None else said.purpose for said in named.values()}
        if None in purposes or len(purposes) < 2:
            return {}
    groups: dict[str, list[str]] = {}
    for name in sorted(stems, key=in_order_of_numbers):
        said = named[name]
        belongs_to_split = said is not None and (said.is_exact or not is_exact)
        split = said.split if said is not None and belongs_to_split else stems[name]
        groups.setdefault(split, []).append(name)
    return {split: groups[split] for split in in_order_of_splits(groups)}


def warn_of_splits(name: str, stems: Mapping[str, str], advice: str) -> None:
    """Warn that files or folders that are named as splits are read as one dataset, because the caller asked for one.

    Args:
        name: of the dataset.
        stems: as for :func:`group_by_split`.
        advice: how to read one split.
    """
    said = [split_of(stem) for stem in stems.values()]
    purposes = {split.purpose for split in said if split is not None}
    splits = group_by_split(stems)
    if len(purposes) > 1 and len(splits) > 1:
        warn_program(
            f"{name} is read as one dataset, but its names are those of the splits {', '.join(list(splits)[:5])}; "
            f"{advice}, or data_stack.load(folder)"
        )


def in_order_of_splits(splits: Iterable[str]) -> list[str]:
    """The splits in alphabetical order, those whose names begin with ``train`` first."""
    return sorted(splits, key=lambda split: (not split.lower().startswith("train"), split))


def in_order_of_numbers(name: str) -> tuple[tuple[str, int, str], ...]:
    """A key that sorts names by the numbers in them: ``part2`` before ``part10``."""
    pieces = re.split(r"([0-9]+)", name)
    numbered = []
    for text, digits in zip(pieces[::2], [*pieces[1::2], ""], strict=True):
        # A number of a million digits would take minutes to convert.
        number = int(digits) if 0 < len(digits) <= 1000 else 0
        numbered.append((text, number, digits))
    return tuple(numbered)


def differ_in_numbers_only(stems: Iterable[str]) -> bool:
    """Whether names are those of the parts of one dataset: they are alike except for the digits in them."""
    return len({re.sub(r"[0-9]+", "0", stem) for stem in stems}) <= 1
