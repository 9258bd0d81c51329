"""Refuses texts of times whose order as texts is another one than that of the times."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from data_stack.exception import ConfigError

_NUMBER: Final = re.compile(r"[0-9]+")
#: The offset of a time zone at the end of a time of day.
_OFFSET: Final = re.compile(r"(?<=[0-9])\s*([+-][0-9]{2}:?[0-9]{2})$")
_DIGITS_OF_A_YEAR: Final = 4
#: Half a day, as in 01:30 PM, which comes after 12:30 PM.
_HALF_OF_A_DAY: Final = re.compile(r"\b[ap]\.?m\b", re.IGNORECASE)
_YEARS: Final = range(1900, 2101)
_ADVICE: Final = (
    "convert the column before, for example "
    "iterator.map(lambda text: datetime.strptime(text, '%m/%d/%Y'), column=…)"
)


def check_texts_are_in_order(values: Iterable[Any], refusal: str) -> None:
    """Refuse a column of texts that mean times, unless the order of the texts is that of the times.

    That is so where all texts have digits at the same places, a year of four digits first, as in ISO 8601:
    ``2023-01-31``, ``2023-01-31T23:59:59``, ``20230131``; or one number, or hours and minutes. Texts without digits are names.

    Args:
        values: the column; other values than texts and bytes are not looked at.
        refusal: how the message begins.

    Raises:
        ConfigError: the order of the texts may be another one than that of the times; the message names two of them.
    """
    texts = [_as_text(value) for value in values if isinstance(value, (str, bytes))]
    with_digits = [text for text in texts if _NUMBER.search(text)]
    if not with_digits:
        return
    layouts = {_layout_of(text): text for text in reversed(texts)}
    longest = max(layouts, key=len)
    for layout, text in layouts.items():
        if not _sorts_with(layout, longest):
            raise ConfigError(
                f"{refusal}: as texts, {text!r:.60} and {layouts[longest]!r:.60} have no order of time; {_ADVICE}"
            )
    if not _begins_with_the_largest_unit(longest) or _end_with_a_year(with_digits):
        first, *others = dict.fromkeys(with_digits)
        second = others[0] if others else first
        raise ConfigError(
            f"{refusal}: {first!r:.60} and {second!r:.60} would be compared letter by letter, and the year does not come "
            f"first; {_ADVICE}"
        )


def _sorts_with(layout: str, longest: str) -> bool:
    """Whether texts of a layout are in order beside those of a longer one: they lack its last numbers, or digits of a fraction.

    A day sorts before its hours, and a time without seconds as one with 00 seconds. But ``week 2`` sorts after ``week 10``.
    """
    missing = longest[len(layout) :]
    if not longest.startswith(layout):
        return False
    return not missing.startswith("0") or re.search(r"[.,]0+$", layout) is not None


def _as_text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("latin-1")


def _layout_of(text: str) -> str:
    """A text with 0 for each digit, except for those of the offset of a time zone, which must be the same in all texts."""
    offset = _OFFSET.search(text) if ":" in text else None
    if offset is None:
        return _NUMBER.sub(_zeros, text)
    return _NUMBER.sub(_zeros, text[: offset.start()]) + text[offset.start() :]


def _zeros(number: re.Match[str]) -> str:
    return "0" * len(number[0])


def _begins_with_the_largest_unit(layout: str) -> bool:
    """Whether the numbers of a layout go from large units to small ones: a year first, a single number, or a time of day."""
    if _HALF_OF_A_DAY.search(layout):
        return False
    sizes = [len(number) for number in _NUMBER.findall(layout)]
    is_time_of_day = re.match(r"00:00(:00([.,]0+)?)?$", layout) is not None
    return len(sizes) == 1 or sizes[0] == _DIGITS_OF_A_YEAR or is_time_of_day


def _end_with_a_year(texts: Iterable[str]) -> bool:
    """Whether all texts are dates of eight digits that end with a year, and some do not begin with one: 12312022."""
    begins_with_years = True
    for text in texts:
        if not re.fullmatch(r"[0-9]{8}", text) or int(text[4:]) not in _YEARS:
            return False
        begins_with_years &= int(text[:4]) in _YEARS
    return not begins_with_years
