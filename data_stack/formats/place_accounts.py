"""Accounts for the files and folders at a place that its datasets do not read."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping

from data_stack.exception import ConfigError, UnsupportedStorageOperationError
from data_stack.formats.dataset_files import DatasetFiles
from data_stack.formats.registry import (
    format_named,
    format_of_file,
    known_formats,
    stems_of_files,
)
from data_stack.formats.split_names import split_of
from data_stack.io.account import LeftOut, PlaceAccount, account_of
from data_stack.io.folder import Folder, LocalFolder
from data_stack.io.location import Location
from data_stack.io.tree import LEADS_OUT

#: The rule that leaves a file or folder out beside the datasets of a place.
NO_DATASET = "no dataset of the same format, by its name and contents"

#: How many datasets a message names.
_MAX_SHOWN = 5


def account_beside(place: Location, datasets: Mapping[str, DatasetFiles]) -> PlaceAccount:
    """Return which files and folders of a place are its datasets, and which are left out.

    What is in the folder of a dataset is in the account of that dataset.

    Args:
        place: where the datasets were looked for.
        datasets: the datasets that were found, by name.
    """
    parts: list[Location] = []
    for files in datasets.values():
        parts.extend(files.parts)
    if any(files.is_place for files in datasets.values()):
        return PlaceAccount(place.full_name, len(parts))
    folders = {part.folder.full_name(""): part.folder for part in parts}
    root = place.as_folder()
    folders.setdefault(root.full_name(""), root)
    metadata_files: list[str] = []
    for format_ in known_formats().values():
        metadata_files.extend(sorted(format_.metadata_files))
    left_out: list[LeftOut] = []
    for folder_name, folder in folders.items():
        # The names in the folder that are read: its datasets, ...
        names_read = [part.name for part in parts if part.folder.full_name("") == folder_name]
        # ... its folders that hold other datasets (the name of a folder ends with a slash), ...
        for other_name in folders:
            # In a bucket, the first part of a path may be empty: that is no name of this folder.
            if other_name != folder_name and other_name.startswith(folder_name):
                names_read.append(_name_in(folder, other_name))
        # ... and metadata, which the datasets read with their samples.
        names_read += metadata_files
        names, links = _names_and_links(folder)
        left_out += account_of(folder_name, names_read, names, NO_DATASET, links).left_out
    return PlaceAccount(place.full_name, len(parts), tuple(left_out))


def check_no_split_is_left_out(account: PlaceAccount, datasets: Mapping[str, DatasetFiles]) -> None:
    """Check that nothing that is left out beside splits is named as a split that is missing.

    Args:
        account: what :func:`account_beside` returned.
        datasets: the datasets that are read, by name.

    Raises:
        ConfigError: ``test`` holds no samples of the format of ``train.csv``, or is a link that is
            not followed.
    """
    stems = stems_of_files(left_out.name for left_out in account.unexplained)
    for left_out in account.unexplained:
        split_name = split_of(stems[left_out.name])
        is_split = split_name is not None and split_name.is_exact
        is_lost = split_name is not None and is_split and split_name.split not in datasets
        format_ = format_of_file(left_out.name)
        # Beside files of another format, a file with such a suffix may hold anything.
        is_vague = format_ is not None and format_.is_suffix_vague
        if not is_lost or is_vague:
            continue
        shown_datasets = ", ".join(list(datasets)[:_MAX_SHOWN])
        raise ConfigError(
            f"{account.place}: {left_out.name!r:.100} is named as a split, "
            f"but is left out ({left_out.rule}). Change it, or "
            f"load {shown_datasets} by path"
        )


def account_of_datasets(datasets: Iterable[DatasetFiles]) -> list[PlaceAccount]:
    """Return the account of each folder that is a dataset, or part of one.

    The folders are listed, but their samples are not opened.

    Args:
        datasets: the datasets at a place.
    """
    accounts = []
    for files in datasets:
        for part in files.parts:
            # A store that cannot list does not know which files are left out.
            with contextlib.suppress(UnsupportedStorageOperationError):
                # is_folder() uses a listing that is known already; is_file() would send a request.
                if not part.is_folder():
                    continue
                account = format_named(files.kind).account_of(part.as_folder())
                if account is not None:
                    accounts.append(account)
    return accounts


def _name_in(folder: Folder, folder_below: str) -> str:
    """Return the first part of the path from a folder to one below it, given by its full name."""
    path = folder_below.removeprefix(folder.full_name(""))
    return path.partition("/")[0]


def _is_empty(place: Location) -> bool:
    """Return whether a place is an empty folder of this machine; stores have no empty folders."""
    path = place.path
    return path is not None and path.is_dir() and not place.as_folder().list_names()


def _names_and_links(folder: Folder) -> tuple[list[str], list[LeftOut]]:
    """Return the names in a folder, and the links in it that are not followed."""
    # A folder without files leaves nothing out.
    names = [name for name in folder.list_names() if not _is_empty(Location(folder, name))]
    links = []
    if isinstance(folder, LocalFolder):
        links = [LeftOut(name, LEADS_OUT) for name in folder.linked_out()]
    return names, links
