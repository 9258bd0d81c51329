"""Refuses times as texts, unless the texts sort in the order of the times."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from data_stack.exception import ConfigError

_NUMBER: Final = re.compile(r"[0-9]+")

#: The offset of a time zone at the end of a time of day.
_OFFSET: Final = re.compile(r"(?<=[0-9])\s*([+-][0-9]{2}:?[0-9]{2})$")

#: AM or PM. (01:30 PM comes after 12:30 PM.)
_HALF_OF_A_DAY: Final = re.compile(r"\b[ap]\.?m\b", re.IGNORECASE)

#: The layout of a time of day, such as ``00:00`` or ``00:00:00.000``, see :func:`_layout_of`.
_TIME_OF_DAY: Final = re.compile(r"00:00(:00([.,]0+)?)?$")

#: A layout that ends with digits of a fraction.
_FRACTION: Final = re.compile(r"[.,]0+$")

_DIGITS_OF_A_YEAR: Final = 4
_YEARS: Final = range(1900, 2101)
_ADVICE: Final = (
    "convert the column before, for example "
    "iterator.map(lambda text: datetime.strptime(text, '%m/%d/%Y'), column=…)"
)


def check_texts_are_in_order(values: Iterable[Any], refusal: str) -> None:
    """Refuse a column of texts that mean times, unless the order of the texts is that of the times.

    That is so where all texts have digits at the same places, a year of four digits first, as in
    ISO 8601: ``2023-01-31``, ``2023-01-31T23:59:59``, ``20230131``; or one number, or hours and
    minutes. Texts without digits are names.

    Args:
        values: the column; other values than texts and bytes are not looked at.
        refusal: how the message begins.

    Raises:
        ConfigError: the order of the texts may be another one than that of the times; the message
            names two of them.
    """
    texts = [_as_text(value) for value in values if isinstance(value, (str, bytes))]
    texts_with_digits = [text for text in texts if _NUMBER.search(text)]
    if not texts_with_digits:
        return

    # All layouts must sort with the longest one. Messages name the first text of a layout, which is
    # the last one here.
    text_by_layout = {_layout_of(text): text for text in reversed(texts)}
    longest = max(text_by_layout, key=len)
    for layout, text in text_by_layout.items():
        if not _sorts_with(layout, longest):
            raise ConfigError(
                f"{refusal}: as texts, {text!r:.60} and {text_by_layout[longest]!r:.60} "
                f"have no order of time; {_ADVICE}"
            )
    if not _begins_with_the_largest_unit(longest) or _end_with_a_year(texts_with_digits):
        first, *others = dict.fromkeys(texts_with_digits)
        second = others[0] if others else first
        raise ConfigError(
            f"{refusal}: {first!r:.60} and {second!r:.60} would be compared letter by letter, "
            f"and the year does not come first; {_ADVICE}"
        )


def _as_text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("latin-1")


def _layout_of(text: str) -> str:
    """Return a text with 0 for each digit.

    The digits of the offset of a time zone stay, as they must be the same in all texts.
    """
    has_time_of_day = ":" in text
    offset = _OFFSET.search(text) if has_time_of_day else None
    if offset is None:
        return _NUMBER.sub(_zeros, text)
    return _NUMBER.sub(_zeros, text[: offset.start()]) + text[offset.start() :]


def _zeros(number: re.Match[str]) -> str:
    return "0" * len(number[0])


def _sorts_with(layout: str, longest: str) -> bool:
    """Return whether texts of a layout are in order beside those of a longer layout.

    They are if they lack its last numbers, or digits of a fraction. A day sorts before its hours,
    and a time without seconds as one with 00 seconds. But ``week 2`` sorts after ``week 10``.
    """
    if not longest.startswith(layout):
        return False
    missing = longest[len(layout) :]
    cuts_a_number = missing.startswith("0")
    return not cuts_a_number or _FRACTION.search(layout) is not None


def _begins_with_the_largest_unit(layout: str) -> bool:
    """Return whether the numbers of a layout go from large units to small ones.

    They do if a year comes first, if there is a single number, or in a time of day.
    """
    if _HALF_OF_A_DAY.search(layout):
        return False
    sizes = [len(number) for number in _NUMBER.findall(layout)]
    has_year_first = sizes[0] == _DIGITS_OF_A_YEAR
    is_single_number = len(sizes) == 1
    return is_single_number or has_year_first or _TIME_OF_DAY.match(layout) is not None


def _end_with_a_year(texts: Iterable[str]) -> bool:
    """Return whether all texts are dates of eight digits that end with a year, as 12312022.

    If all of them may begin with a year too, they are taken to begin with it.
    """
    all_begin_with_a_year = True
    for text in texts:
        is_date = re.fullmatch(r"[0-9]{8}", text) is not None
        if not is_date or int(text[4:]) not in _YEARS:
            return False
        if int(text[:4]) not in _YEARS:
            all_begin_with_a_year = False
    return not all_begin_with_a_year
