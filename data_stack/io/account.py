"""The account of a folder, bucket or table: which files were read, and which were left out.

A dataset is read from the files of one format. The account lists all other files, each with the
rule that leaves it out. No warning mentions documents beside the data, hidden files, and links back
to a folder above. One warning gives the number of all other files, and the names of the first few.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from data_stack.exception import LeftOutWarning
from data_stack.io.tree import LEADS_BACK, LeftOut
from data_stack.util.program_lines import warn_program

__all__ = [
    "DOCUMENT",
    "HIDDEN",
    "LeftOut",
    "PlaceAccount",
    "account_of",
    "is_document",
    "is_hidden",
]

# Rules that are documented and leave nothing out that could be data.
DOCUMENT: Final = "a document, a program or a checksum"
HIDDEN: Final = "a hidden file"
#: Rules that no warning mentions.
_SILENT_RULES: Final = (DOCUMENT, HIDDEN, LEADS_BACK)

#: Names of documents that need no suffix, or ``.txt``.
_DOCUMENT_NAME: Final = re.compile(
    r"(readme|licen[cs]e|copying|notice|citation|authors|contributors|contributing|changelog|"
    r"changes|history|about|manifest|version|makefile|dockerfile|requirements|"
    r"(md5|sha1|sha256|sha512)sums?|checksums?|thumbs\.db|desktop\.ini)([._ -][^/]*)?",
    re.IGNORECASE,
)
#: Suffixes of documents, programs, settings and checksums.
_DOCUMENT_SUFFIXES: Final = (
    ".md", ".rst", ".pdf", ".bib", ".cff", ".html", ".htm", ".css", ".log",
    ".py", ".ipynb", ".sh", ".r", ".jl", ".cfg", ".ini", ".toml", ".yaml", ".yml", ".lock",
    ".crc", ".md5", ".sha1", ".sha256", ".sha512", ".sig", ".asc",
)  # fmt: skip
#: Suffixes with which a name such as ``README.txt`` is still that of a document: ``readme.csv`` is
#: data.
_TEXT_SUFFIXES: Final = ("txt", "db", "ini")
#: Descriptions of a dataset for programs: of Croissant, Hugging Face and TFDS.
_DESCRIPTION_NAMES: Final = (
    "croissant.json", "dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json",
    "features.json", "datapackage.json",
)  # fmt: skip
#: What macOS adds to archives.
_MACOS_FOLDER: Final = "__MACOSX"

_MAX_SHOWN_NAMES: Final = 3
_MAX_SHOWN_CHARACTERS: Final = 100


def is_document(path: str) -> bool:
    """Return whether the name of a file says that it is no data.

    Such a file is a document, a program, a description of the dataset or a checksum.
    """
    name = path.rpartition("/")[2].lower()
    if name.endswith(_DOCUMENT_SUFFIXES) or name in _DESCRIPTION_NAMES:
        return True
    stem, dot, suffix = name.rpartition(".")
    has_suffix_of_data = bool(dot) and bool(stem) and suffix not in _TEXT_SUFFIXES
    if has_suffix_of_data:
        return False
    return _DOCUMENT_NAME.fullmatch(name) is not None


def is_hidden(path: str) -> bool:
    """Return whether a file is hidden, or in a hidden folder, or what macOS adds to archives."""
    return any(part.startswith(".") or part == _MACOS_FOLDER for part in path.split("/"))


@dataclass(frozen=True, slots=True)
class PlaceAccount:
    """What was read of a place and what was not.

    Attributes:
        place: the name of the folder, bucket or table in messages.
        n_read: the number of files that are read.
        left_out: the files and folders that are not read, with the rule that leaves each out.
    """

    place: str
    n_read: int
    left_out: tuple[LeftOut, ...] = ()

    @property
    def unexplained(self) -> tuple[LeftOut, ...]:
        """What was left out and may be data: all but documents and hidden files."""
        return tuple(left_out for left_out in self.left_out if left_out.rule not in _SILENT_RULES)

    def with_left_out(self, more: Sequence[LeftOut]) -> PlaceAccount:
        """Return the same account, in which more is left out."""
        if not more:
            return self
        return replace(self, left_out=(*self.left_out, *more))

    def summary(self) -> str:
        """Return what was left out and may be data, in one line; empty if that is nothing."""
        names_by_rule: dict[str, list[str]] = {}
        for left_out in self.unexplained:
            names_by_rule.setdefault(left_out.rule, []).append(left_out.name)
        parts = [f"{_list_first(names)} ({rule})" for rule, names in names_by_rule.items()]
        return "; ".join(parts)

    def warn(self) -> None:
        """Warn once of everything that was left out and may be data."""
        summary = self.summary()
        if not summary:
            return
        warn_program(
            f"{self.place.rstrip('/')}: {len(self.unexplained):,} of what is there is left out, "
            f"and {self.n_read:,} read: {summary}. "
            "docs/what_is_read.md says why, and how to read it",
            LeftOutWarning,
        )


def account_of(
    place: str, read: Sequence[str], found: Iterable[str], rule: str, links: Iterable[LeftOut] = ()
) -> PlaceAccount:
    """Return the account of a place.

    Args:
        place: the name of the folder, bucket or table in messages.
        read: the paths of the files that are read.
        found: the paths of all files that are there.
        rule: the rule that leaves out all other files but documents and hidden ones, such as
            ``"no image, by its suffix"``.
        links: links that were left out when the files were listed.
    """
    read_paths = set(read)
    left_out = list(links)
    for path in found:
        if path in read_paths:
            continue
        if is_hidden(path):
            left_out.append(LeftOut(path, HIDDEN))
        elif is_document(path):
            left_out.append(LeftOut(path, DOCUMENT))
        else:
            left_out.append(LeftOut(path, rule))
    return PlaceAccount(place, len(read_paths), tuple(left_out))


def _list_first(names: Sequence[str]) -> str:
    """Return the first few of some names, and the number of the others."""
    shown_names = [f"{name[:_MAX_SHOWN_CHARACTERS]!r}" for name in names[:_MAX_SHOWN_NAMES]]
    shown = ", ".join(shown_names)
    n_others = len(names) - len(shown_names)
    if not n_others:
        return shown
    return f"{shown} and {n_others:,} more"
