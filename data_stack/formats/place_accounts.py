"""Accounts for what is at a place: which files its datasets read, and which are left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from data_stack.formats.image_folder import METADATA_OF_IMAGES, ImageFolderIterator
from data_stack.formats.place_splits import DatasetFiles
from data_stack.formats.webdataset import account_of_shards
from data_stack.io.account import LeftOut, PlaceAccount, account_of
from data_stack.io.folder import Folder, LocalFolder
from data_stack.io.location import Location
from data_stack.io.tree import LEADS_OUT

#: The rule that leaves a file or folder out beside the datasets of a place.
NO_DATASET = "no dataset of the same format, by its name and contents"


def account_beside(place: Location, datasets: Mapping[str, DatasetFiles]) -> PlaceAccount:
    """The account of the files and folders of a place that are the datasets, such as its splits, and of those beside them.

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
    left_out: list[LeftOut] = []
    for name, folder in folders.items():
        read = [part.name for part in parts if part.folder.full_name("") == name]
        # A folder of another folder that holds datasets is read by its datasets.
        read += [_name_in(folder, other) for other in folders if other.startswith(name)]
        read += METADATA_OF_IMAGES
        names, links = _names_and_links(folder)
        left_out += account_of(name, read, names, NO_DATASET, links).left_out
    return PlaceAccount(place.full_name, len(parts), tuple(left_out))


def account_of_datasets(datasets: Iterable[DatasetFiles]) -> list[PlaceAccount]:
    """The account of each folder of datasets that are folders; nothing is opened but listings.

    Args:
        datasets: at a place.
    """
    accounts = []
    for files in datasets:
        for part in files.parts:
            account = None if part.is_file() else _account_of_folder(part.as_folder(), files.kind)
            if account is not None:
                accounts.append(account)
    return accounts


def _account_of_folder(folder: Folder, kind: str) -> PlaceAccount | None:
    """The account of a folder of a format that reads many files; None for another format."""
    if kind == "images":
        return ImageFolderIterator(folder).look_around()
    if kind == "webdataset":
        return account_of_shards(folder)
    if kind == "parquet":
        from data_stack.formats.parquet.files import find_files

        return find_files(folder).account
    return None


def _name_in(folder: Folder, below: str) -> str:
    """The name in a folder of the folder that holds, or is, one below it."""
    return below[len(folder.full_name("")) :].partition("/")[0]


def _names_and_links(folder: Folder) -> tuple[list[str], list[LeftOut]]:
    """The names in a folder, and the links in it that are not followed."""
    names = folder.list_names()
    links = []
    if isinstance(folder, LocalFolder):
        links = [LeftOut(name, LEADS_OUT) for name in folder.linked_out()]
    return names, links
