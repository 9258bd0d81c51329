"""Detects the format of a dataset by its name and content."""

from __future__ import annotations

import os

from data_stack.exception import ConfigError
from data_stack.formats.conversion.format import ConvertibleFormat, convertible_formats, format_of_suffix
from data_stack.io.location import Location

FORMATS = tuple(convertible_formats())
"""The names of the formats that can be converted."""


def find_source_format(location: Location, advice: str | None = None) -> str:
    """Detect the format of the dataset at ``location`` by its suffix or by the contents of the folder.

    Args:
        location: the dataset.
        advice: how to name the format, for errors; None: by ``--from``.

    Raises:
        ConfigError: nothing is there, or no format or several formats fit.
    """
    formats = convertible_formats()
    choice = f"say which it is: --from {' or '.join(formats)}" if advice is None else advice
    if location.is_file():
        return _of_suffix(location, choice).name
    folder = location.as_folder()
    names = folder.list_names()
    if not names:
        raise ConfigError(f"there is nothing at {location.full_name}")
    for is_fallback in (False, True):
        found = [each.name for each in formats.values() if each.is_fallback == is_fallback and each.recognizes(folder, names)]
        if found:
            break
    if len(found) != 1:
        why = f"its contents fit {' and '.join(found) or 'no format'}"
        raise ConfigError(f"cannot detect the format of {location.full_name}: {why}; {choice}")
    return found[0]


def find_target_format(location: Location) -> str:
    """The format of the suffix of a target; records without a suffix.

    Raises:
        ConfigError: the suffix is unknown.
    """
    if not os.path.splitext(location.name)[1]:
        return "records"
    return _of_suffix(location, f"choose one: --to {' or '.join(convertible_formats())}").name


def _of_suffix(location: Location, choice: str) -> ConvertibleFormat:
    found = format_of_suffix(os.path.splitext(location.name)[1].lower())
    if not isinstance(found, ConvertibleFormat):
        known = ", ".join(suffix for each in convertible_formats().values() for suffix in each.suffixes)
        raise ConfigError(f"cannot detect the format of {location.full_name} by its suffix (known: {known}); {choice}")
    return found
