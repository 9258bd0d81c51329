"""The argument NAME of commands: a dataset, or the path or URL of a file or folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from data_stack.cli.completion import complete_names
from data_stack.cli.settings import Settings

if TYPE_CHECKING:
    from data_stack.dataset.iterator import DatasetIteratorIF
    from data_stack.repository.repository import DatasetRepository

#: Adds the argument ``name`` to a command.
name_argument = click.argument("name", metavar="NAME", shell_complete=complete_names)


def repository() -> DatasetRepository:
    """Return the repository of ``data_stack.load``."""
    from data_stack.repository.repository import default_repository

    return default_repository()


def name_to_load(settings: Settings, text: str) -> str:
    """Return what ``load`` takes for the argument NAME.

    ``./`` may be left out before the name of a file or folder, as for :func:`find_place`: if no
    dataset is called ``train.csv``, and no store is named, the path ``./train.csv`` is returned.
    """
    from data_stack.repository.dataset_names import is_place

    if settings.storage is None and not is_place(text) and _is_file_of_no_dataset(text):
        return os.path.join(os.curdir, text)
    return text


def _is_file_of_no_dataset(text: str) -> bool:
    """Return whether a file or folder has this name, and no dataset has it."""
    return os.path.exists(text) and text not in repository().list()


def find_place(settings: Settings, text: str, options: Mapping[str, Any]) -> str | None:
    """Return the path or URL that a text names; None for the name of a dataset.

    As in :func:`data_stack.load`, a dataset takes precedence over a file or folder of its name:
    ``digits`` is the dataset, ``./digits`` and ``digits/`` are the folder. If no dataset has the
    name of an existing file or folder, ``./`` may be left out: for ``train.h5`` the path
    ``./train.h5`` is returned, which ``load`` takes for a path.

    Raises:
        UsageError: the text is a path or URL, and options for a dataset are given.
    """
    from data_stack.repository.dataset_names import is_place

    path_or_url = os.path.expanduser(text)
    if not is_place(text):
        if not _is_file_of_no_dataset(text):
            return None
        path_or_url = os.path.join(os.curdir, text)
    if options or settings.storage is not None:
        raise click.UsageError(
            f"--storage and -O require an installed dataset, but {text!r} is a file, folder or URL"
        )
    return path_or_url


def load_first_split(
    settings: Settings, name: str, split: str | None, options: Mapping[str, Any]
) -> DatasetIteratorIF:
    """Load one split of a dataset, file or folder; the first one if ``split`` is None."""
    loaded: DatasetIteratorIF | dict[str, DatasetIteratorIF]
    name = name_to_load(settings, name)
    loaded = repository().load(name, split, settings.connector(), **options)
    if isinstance(loaded, dict):
        return next(iter(loaded.values()))
    return loaded
