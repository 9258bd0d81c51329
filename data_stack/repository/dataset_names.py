"""Parses what users write to name a dataset."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, TypeAlias

from data_stack.exception import ConfigError
from data_stack.io.url import StorageURL

#: The beginnings of paths: this folder, the folder above, the root, the home folder.
_BEGINNINGS_OF_PATHS = ("./", "../", "/", "~")


@dataclass(frozen=True, slots=True)
class PlaceName:
    """A path or URL.

    Attributes:
        text: as the user wrote it.
        url: its parts; None for a path, and for a text with ``://`` that is no URL.
    """

    text: str
    url: StorageURL | None

    @classmethod
    def parse(cls, path_or_url: str | os.PathLike[str]) -> PlaceName:
        """Parse a path or URL, such as ``"train.csv"``, which need not begin with ``./`` here."""
        text = os.fspath(path_or_url)
        return cls(text, StorageURL.parse(text))


@dataclass(frozen=True, slots=True)
class DatasetName:
    """The name of a dataset that a program registered, or a plugin or catalogue provides.

    Attributes:
        text: as the user wrote it.
        plain: without its version.
        version: what follows the last ``@``; empty without one. The name of a dataset may contain
            an ``@``, so a dataset that is named ``text`` comes first.
    """

    text: str
    plain: str
    version: str

    @classmethod
    def parse(cls, text: str) -> DatasetName:
        """Parse ``"digits"`` or ``"digits@1.0.0"``."""
        plain, at, version = text.rpartition("@")
        if not at:
            return cls(text, text, "")
        return cls(text, plain, version)


Name: TypeAlias = PlaceName | DatasetName
"""What a user writes to name a dataset."""


def parse_name(name: Any) -> Name:
    """Parse what a user wrote to name a dataset.

    A path is a ``Path``, or a text that begins with ``./``, ``../``, ``/`` or ``~``, or ends with
    ``/``; a URL is a text with ``://``. All other texts name datasets, so that no file or folder
    hides a dataset.

    Raises:
        ConfigError: it is neither a text nor a ``Path``.
    """
    if is_place(name):
        return PlaceName.parse(name)
    if not isinstance(name, str):
        raise ConfigError(
            f"a dataset is named by a text, such as 'digits', or a path such as './train.csv', "
            f"got {name!r:.80}"
        )
    return DatasetName.parse(str(name))


def is_place(name: Any) -> bool:
    """Return whether a name is a path or URL; see :func:`parse_name`."""
    if not isinstance(name, str):
        return isinstance(name, os.PathLike)
    if name in (".", "..") or name.startswith(_BEGINNINGS_OF_PATHS):
        return True
    return name.endswith("/") or "://" in name
