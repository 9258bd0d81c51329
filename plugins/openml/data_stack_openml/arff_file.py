"""Reads ARFF files with exact values.

The format: https://waikato.github.io/weka-wiki/formats_and_processing/arff_stable.
"""

from __future__ import annotations

import codecs
import contextlib
import re
from dataclasses import dataclass
from typing import Any, Final

import arff

#: The declaration of a column, up to its type; not of nominal ones, whose type begins with a brace.
_DECLARATION: Final = re.compile(
    r"""
    ^(?P<start>
        \s* @attribute \s+
        (?: '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" | [^\s'"{},%]+ )
        \s+
    )
    (?P<type> [^\s{]\S* )
    """,
    re.IGNORECASE | re.VERBOSE,
)

_NUMBER_TYPES: Final = ("numeric", "real", "integer")

#: What Windows calls Latin-1: a byte of 0x80 to 0x9F is a letter or mark, where Latin-1 has a
#: control character.
_WINDOWS_LATIN: Final = "cp1252"


@dataclass(frozen=True)
class Attribute:
    """A column of an ARFF file.

    Attributes:
        name: name of the column.
        kind: ``"number"``, ``"nominal"`` or ``"text"``.
    """

    name: str
    kind: str


@dataclass(frozen=True)
class ArffFile:
    """The columns and rows of a file.

    Attributes:
        attributes: the columns, in order.
        rows: the rows: lists of texts, None if missing; of a sparse file, dicts of the values that
            the file lists, by position.
        omitted: for each column, the value that a sparse file omits.
        is_sparse: whether the file is sparse.
    """

    attributes: list[Attribute]
    rows: list[Any]
    omitted: list[str]
    is_sparse: bool

    def values(self, position: int) -> list[str | None]:
        """Return the values of a column as texts, None if missing."""
        if self.is_sparse:
            return [row.get(position, self.omitted[position]) for row in self.rows]
        return [row[position] for row in self.rows]


def decode_arff(data: bytes) -> tuple[str, str]:
    """Return the text of an ARFF file without its byte order mark, and its encoding.

    ARFF files do not name their encoding. A text that is UTF-8 by chance is hardly ever one in
    another encoding; other files of OpenML are in Latin-1, as far as they were reported.
    """
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return data.decode("utf-16"), "utf-16"
    for encoding in ("utf-8-sig", _WINDOWS_LATIN):
        with contextlib.suppress(UnicodeDecodeError):
            return data.decode(encoding), encoding
    return data.decode("latin-1"), "latin-1"


def read_arff(text: str, *, is_sparse: bool) -> ArffFile:
    """Parse an ARFF file.

    Raises:
        ValueError: the file is malformed.
    """
    # Not splitlines(), which also splits at characters that texts may contain.
    lines = text.replace("\r\n", "\n").split("\n")
    kinds = _declare_as_texts(lines)
    return_type = arff.LOD if is_sparse else arff.DENSE
    try:
        loaded = arff.loads("\n".join(lines), return_type=return_type)
    except arff.ArffException as error:
        raise ValueError(str(error)) from error

    attributes = []
    omitted = []
    for (name, type_or_categories), kind in zip(loaded["attributes"], kinds, strict=True):
        attributes.append(Attribute(name, kind))
        # A sparse file omits zeros, and the first category of nominal columns.
        if isinstance(type_or_categories, list):
            omitted.append(type_or_categories[0])
        else:
            omitted.append("0")
    return ArffFile(attributes, loaded["data"], omitted, is_sparse)


def _declare_as_texts(lines: list[str]) -> list[str]:
    """Declare columns of numbers and dates as texts, in the lines of a file.

    The parser, liac-arff, rounds numbers to float64 and knows no dates.

    Args:
        lines: the lines, which are changed. Comments behind declarations are removed.

    Returns:
        The kind of each column, as it was declared.
    """
    kinds = []
    for number, line_of_file in enumerate(lines):
        line = line_of_file
        if line.lstrip().startswith("@"):
            line = _remove_comment(line)
            lines[number] = line
        keyword = line.lstrip().lower()
        if keyword.startswith("@data"):
            break
        declaration = _DECLARATION.match(line)
        if declaration is not None:
            type_name = declaration["type"].lower()
            is_number = type_name in _NUMBER_TYPES
            kinds.append("number" if is_number else "text")
            if is_number or type_name == "date":
                lines[number] = declaration["start"] + "STRING"
        elif keyword.startswith("@attribute"):
            kinds.append("nominal")
    return kinds


def _remove_comment(line: str) -> str:
    """Remove a comment, which begins with a blank and ``%``.

    An example is ``@attribute y {-1,1} % {<=50K, >50K}``. The characters are read once, one by one:
    a regular expression would take quadratic time for hostile quotes.
    """
    if "%" not in line:
        return line
    quote = ""
    is_in_braces = False
    is_escaped = False
    previous = ""
    for position, character in enumerate(line):
        if is_escaped:
            is_escaped = False
        elif quote:
            is_escaped = character == "\\"
            if character == quote:
                quote = ""
        elif character in "'\"":
            quote = character
        elif character in "{}":
            is_in_braces = character == "{"
        elif character == "%" and previous.isspace() and not is_in_braces:
            return line[:position].rstrip()
        previous = character
    return line
