"""Accounts for what is at a place: which files its datasets read, and which are left out."""

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


def account_beside(place: Location, datasets: Mapping[str, DatasetFiles]) -> PlaceAccount:
    """Return which files and folders of a place are its datasets, and which are left out.

    What is in the folder of a dataset is in the account of that dataset.

    Args:
        place: where the datasets were looked for.
        datasets: what was found, by name.
    """
    parts = [part for files in datasets.values() for part in files.parts]
    if any(files.is_place for files in datasets.values()):
        return PlaceAccount(place.full_name, len(parts))
    folders = {part.folder.full_name(""): part.folder for part in parts}
    root = place.as_folder()
    folders.setdefault(root.full_name(""), root)
    metadata_files: list[str] = []
    for format_ in known_formats().values():
        metadata_files.extend(sorted(format_.metadata_files))
    left_out: list[LeftOut] = []
    for name, folder in folders.items():
        read = [part.name for part in parts if part.folder.full_name("") == name]
        # A folder of another folder that holds datasets is read by its datasets.
        read += [_name_in(folder, other) for other in folders if other.startswith(name)]
        read += metadata_files
        names, links = _names_and_links(folder)
        left_out += account_of(name, read, names, NO_DATASET, links).left_out
    return PlaceAccount(place.full_name, len(parts), tuple(left_out))


def check_no_split_is_left_out(account: PlaceAccount, datasets: Mapping[str, DatasetFiles]) -> None:
    """Check that nothing that is left out beside splits is named as a split that is missing.

    Args:
        account: of :func:`account_beside`.
        datasets: what is read.

    Raises:
        ConfigError: ``test`` holds no samples of the format of ``train.csv``, or is a link that is
            not followed.
    """
    stems = stems_of_files(left_out.name for left_out in account.unexplained)
    for left_out in account.unexplained:
        said = split_of(stems[left_out.name])
        is_lost = said is not None and said.is_exact and said.split not in datasets
        format_ = format_of_file(left_out.name)
        # Beside files of another format, a file with such a suffix may hold anything.
        is_vague = format_ is not None and format_.is_suffix_vague
        if not is_lost or is_vague:
            continue
        read = ", ".join(list(datasets)[:5])
        raise ConfigError(
            f"{account.place}: {left_out.name!r:.100} is named as a split, "
            f"but is left out ({left_out.rule}). Change it, or "
            f"load {read} by path"
        )


def account_of_datasets(datasets: Iterable[DatasetFiles]) -> list[PlaceAccount]:
    """The account of each folder of datasets that are folders; nothing is opened but listings.

    Args:
        datasets: at a place.
    """
    accounts = []
    for files in datasets:
        for part in files.parts:
            # Of a store that cannot list, no more is known than what is read.
            with contextlib.suppress(UnsupportedStorageOperationError):
                # A listing that is known already costs no request; a question for a file would.
                is_folder = part.is_folder()
                if not is_folder:
                    continue
                account = format_named(files.kind).account_of(part.as_folder())
                if account is not None:
                    accounts.append(account)
    return accounts


def _name_in(folder: Folder, below: str) -> str:
    """The name in a folder of the folder that holds, or is, one below it."""
    return below[len(folder.full_name("")) :].partition("/")[0]


def _is_empty(place: Location) -> bool:
    """Whether something in a folder of this machine is a folder without files; a store has none."""
    path = place.path
    return path is not None and path.is_dir() and not place.as_folder().list_names()


def _names_and_links(folder: Folder) -> tuple[list[str], list[LeftOut]]:
    """The names in a folder, and the links in it that are not followed."""
    # A folder without files leaves nothing out.
    names = [name for name in folder.list_names() if not _is_empty(Location(folder, name))]
    links = []
    if isinstance(folder, LocalFolder):
        links = [LeftOut(name, LEADS_OUT) for name in folder.linked_out()]
    return names, links
