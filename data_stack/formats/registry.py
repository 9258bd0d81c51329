"""The registry of formats: finds the format of a name, of a file, or of a folder.

A format registers itself by a decorator, and the registry imports all modules of
``data_stack.formats.builtin``: to add a format, add one module with a class. Programs register
formats in the same way; formats of plugins come from the hook ``data_stack_formats``. A format of
data_stack takes precedence over one of a plugin: plugins are searched only if no format of
data_stack fits.
"""

from __future__ import annotations

import functools
import importlib
import mimetypes
import os
import pkgutil
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final, TypeVar

from data_stack.exception import ArgumentError, ConfigError
from data_stack.formats import builtin
from data_stack.formats.format import Format, WritableFormat
from data_stack.formats.managed_tables import refuse_managed_table
from data_stack.io.folder import Folder
from data_stack.io.location import Location
from data_stack.util.forks import fork_lock
from data_stack.util.suggestions import did_you_mean

_FormatClass = TypeVar("_FormatClass", bound="type[Format]")
_AnyFormat = TypeVar("_AnyFormat", bound=Format)

#: The registered formats by name. Use :func:`known_formats`, which registers ours first. A
#: registration replaces the dict, so that another thread may loop over the previous one meanwhile.
_formats: Mapping[str, Format] = {}

#: Held while a format is registered or removed.
_registering: Final = fork_lock()

#: How many names of a folder are compared with a name that is not there.
_MAX_NAMES_COMPARED: Final = 10_000

#: The suffixes of a compressed file, in small or capital letters.
_COMPRESSED: Final = re.compile(r"(\.(gz|bz2|xz|zst))+$", re.IGNORECASE)

_CODE: Final = (".py", ".ipynb", ".sh", ".bat", ".r", ".m", ".c", ".cpp", ".h", ".js", ".css")
_TEXTS: Final = (".md", ".rst", ".html", ".htm", ".pdf", ".tex", ".bib", ".license", ".lock")
_SETTINGS: Final = (".yaml", ".yml", ".toml", ".cfg", ".ini")
_LEFTOVERS: Final = (".log", ".out", ".err", ".bak", ".tmp")
_CHECKSUMS_AND_INDEXES: Final = (
    ".md5",
    ".sha1",
    ".sha256",
    ".crc",
    ".asc",
    ".sig",
    ".idx",
    ".index",
)

#: The suffixes of files beside datasets that are never samples. Plugins are not searched for their
#: formats.
NEVER_SAMPLES: Final = frozenset(_CODE + _TEXTS + _SETTINGS + _LEFTOVERS + _CHECKSUMS_AND_INDEXES)


# ---------------------------------------------------------------------- registering


def register_format(format_class: _FormatClass) -> _FormatClass:
    """Register a format by its name, in place of one with the same name; a class decorator."""
    global _formats
    new_format = format_class()
    with _registering:
        _formats = {**_formats, format_class.name: new_format}
    return format_class


def unregister_format(name: str) -> None:
    """Remove a format that a program registered."""
    global _formats
    with _registering:
        remaining_formats = dict(_formats)
        del remaining_formats[name]
        _formats = remaining_formats


@functools.cache
def _register_builtin_formats() -> None:
    """Import the modules of our formats, once: each of them registers its format."""
    for module in pkgutil.iter_modules(builtin.__path__, f"{builtin.__name__}."):
        importlib.import_module(module.name)


def known_formats() -> Mapping[str, Format]:
    """Return the formats of data_stack, and those that the program registered, by name."""
    _register_builtin_formats()
    return _formats


def provided_formats() -> dict[str, Format]:
    """Return the formats of plugins by name, without those whose names are registered already."""
    # Imported only if none of our formats fits, as a search for plugins takes time.
    from data_stack.plugins.manager import default_manager

    known = known_formats()
    provided = default_manager().provided("formats")
    return {name: format_class() for name, format_class in provided.items() if name not in known}


def all_formats() -> dict[str, Format]:
    """Return all formats by name, sorted; imports the plugins with hooks."""
    formats = {**provided_formats(), **known_formats()}
    return dict(sorted(formats.items()))


def writable_formats() -> dict[str, WritableFormat]:
    """Return the formats that a conversion writes by name, sorted."""
    return {
        name: format_
        for name, format_ in all_formats().items()
        if isinstance(format_, WritableFormat)
    }


# ---------------------------------------------------------------------- by the name of a format


def format_named(name: str) -> Format:
    """Return the format with a name, in small or capital letters.

    Raises:
        ConfigError: there is no such format.
    """
    format_ = known_formats().get(name.lower())
    if format_ is not None:
        return format_
    return _choose(name, all_formats())


def writable_format_named(name: str) -> WritableFormat:
    """Return the format with a name, for the target of a conversion.

    Raises:
        ConfigError: there is no such format, or it cannot be written.
    """
    return _choose(name, writable_formats())


def _choose(name: str, formats: Mapping[str, _AnyFormat]) -> _AnyFormat:
    if name.lower() not in formats:
        raise ConfigError(
            f"unknown format {name!r:.40}{did_you_mean(name, formats)}; "
            f"known formats: {', '.join(formats)}"
        )
    return formats[name.lower()]


# ---------------------------------------------------------------------- by the name of a file


def format_of_suffix(suffix: str) -> Format | None:
    """Return the format of files whose names end in ``suffix``, such as ``".h5"``, or None."""
    format_ = _first_with_suffix(suffix, known_formats().values())
    if format_ is not None:
        return format_
    if not suffix or suffix in NEVER_SAMPLES:
        return None
    return _first_with_suffix(suffix, provided_formats().values())


def _first_with_suffix(suffix: str, formats: Iterable[Format]) -> Format | None:
    for format_ in formats:
        if suffix in format_.suffixes:
            return format_
    return None


def format_of_file(
    file_name: str, find_format: Callable[[str], Format | None] = format_of_suffix
) -> Format | None:
    """Return the format of a file, which may be compressed, by the suffix of its name, or None.

    Args:
        file_name: the name of the file.
        find_format: returns the format of a suffix.
    """
    lowered = file_name.lower()
    plain_name = without_compression(lowered)
    format_ = find_format(os.path.splitext(plain_name)[1])
    if format_ is None:
        return None
    is_compressed = plain_name != lowered
    if is_compressed and not format_.is_streamed:
        return None
    return format_


def without_compression(file_name: str) -> str:
    """Return the name of a compressed file without the suffix: ``a.csv`` for ``a.csv.gz``."""
    return _COMPRESSED.sub("", file_name)


def stem_of_file(file_name: str) -> str:
    """Return the name of a file without the suffix of its format: ``a.b`` for ``a.b.csv.gz``.

    A name without such a suffix is returned as it is.
    """
    return stems_of_files([file_name])[file_name]


def stems_of_files(file_names: Iterable[str]) -> dict[str, str]:
    """Return the names of files without the suffixes of their formats, by the whole names.

    The format of a suffix is looked up once, as a folder may hold a million files: a suffix that
    is not ours makes the plugins be searched, which takes 0.1 ms.
    """
    find_format = functools.cache(format_of_suffix)
    stems = {}
    for file_name in file_names:
        stem = file_name
        if format_of_file(file_name, find_format) is not None:
            stem = os.path.splitext(without_compression(file_name))[0]
        stems[file_name] = stem
    return stems


def known_suffixes() -> list[str]:
    """Return the suffixes of all formats."""
    suffixes: list[str] = []
    for format_ in all_formats().values():
        suffixes.extend(format_.suffixes)
    return suffixes


# ---------------------------------------------------------------------- by the files of a place


def detect_format(location: Location, argument: str = "format") -> Format:
    """Detect the format of a file by its suffix, or of a folder by its contents.

    Args:
        location: the file or folder.
        argument: the argument of the caller that names the format, for the message of an error.

    Raises:
        ConfigError: nothing is there.
        ArgumentError: no format or several formats fit.
        ManagedTableError: it is a table of Delta Lake, Iceberg or Hudi.
    """
    format_of_name = format_of_file(location.name)
    if format_of_name is not None and location.is_file():
        return format_of_name

    folder = location.as_folder()
    names = []
    # A store that can delete can list its files, too. Only what has no names in it may be a file.
    if folder.can_delete:
        names = folder.list_names()
    if not names:
        if location.is_file():
            raise unknown_suffix_error(location, "say which it is by", argument, all_formats())
        # This raises the error of a store that cannot list.
        names = folder.list_names()
    if not names:
        if location.path is not None and location.path.is_dir():
            raise ConfigError(f"the folder {location.full_name} is empty")
        raise ConfigError(f"there is nothing at {location.full_name}{_advice_on_missing(location)}")

    refuse_managed_table(folder, names)
    candidates = _recognize(folder, names, known_formats().values())
    if not candidates:
        candidates = _recognize(folder, names, provided_formats().values())
    if len(candidates) != 1:
        fitting = " and ".join(candidate.name for candidate in candidates) or "no format"
        raise ArgumentError(
            f"cannot detect the format of {location.full_name}: its contents fit {fitting}; "
            "say which it is by",
            argument,
            tuple(all_formats()),
        )
    return candidates[0]


def _advice_on_missing(location: Location) -> str:
    """Return what may be wrong with a path at which nothing is, as the end of a message."""
    if location.path is None:
        return ""
    if any(character in location.name for character in "*?["):
        return (
            "; patterns of names are not expanded: name the folder, or combine() the datasets of "
            "several files"
        )
    folder = location.path.parent
    if not folder.is_dir():
        return f": the folder {location.folder.describe('').rstrip('/')} does not exist"
    with os.scandir(folder) as entries:
        names = [entry.name for entry in islice(entries, _MAX_NAMES_COMPARED)]
    return did_you_mean(location.name, names)


def _recognize(folder: Folder, names: Sequence[str], formats: Iterable[Format]) -> list[Format]:
    """Return the formats that recognize a folder; fallbacks only if no other format does."""
    first_choices = []
    fallbacks = []
    for format_ in formats:
        if format_.is_fallback:
            fallbacks.append(format_)
        else:
            first_choices.append(format_)

    recognizing = [format_ for format_ in first_choices if format_.recognize(folder, names)]
    if recognizing:
        return recognizing
    return [format_ for format_ in fallbacks if format_.recognize(folder, names)]


def unknown_suffix_error(
    location: Location, advice: str, argument: str, formats: Iterable[str]
) -> ArgumentError:
    """Return the error for a file whose suffix is that of no format.

    Args:
        location: the file.
        advice: what to do, up to the name of the argument: ``"say which it is by"``.
        argument: the argument of the caller that names the format.
        formats: the names that the argument can have.
    """
    known = ", ".join(known_suffixes())
    explanation = ""
    if (mimetypes.guess_type(location.name)[0] or "").startswith("image/"):
        explanation = "a picture is one sample of the folder that it is in: name the folder; "
    elif location.name == "data_stack.json":
        explanation = "it describes the dataset of its folder: name the folder; "
    return ArgumentError(
        f"cannot detect the format of {location.full_name} by its suffix (known: {known}); "
        f"{explanation}{advice}",
        argument,
        tuple(formats),
    )
