"""Accounts for what is at a place: which files its datasets read, and which are left out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping

from data_stack.exception import ConfigError, UnsupportedStorageOperationError
from data_stack.formats.image_folder import METADATA_OF_IMAGES, ImageFolderIterator
from data_stack.formats.place_splits import DatasetFiles, format_of_name, stem_of_name
from data_stack.formats.records.layout import SPEC
from data_stack.formats.records.manifest import MANIFEST
from data_stack.formats.split_names import split_of
from data_stack.formats.webdataset import account_of_shards
from data_stack.io.account import LeftOut, PlaceAccount, account_of
from data_stack.io.folder import Folder, LocalFolder
from data_stack.io.location import Location
from data_stack.io.tree import LEADS_OUT

#: The rule that leaves a file or folder out beside the datasets of a place.
NO_DATASET = "no dataset of the same format, by its name and contents"

#: The rule that leaves a file out of a folder of records.
_NO_RECORDS = "no file of records"


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


def check_no_split_is_left_out(account: PlaceAccount, datasets: Mapping[str, DatasetFiles]) -> None:
    """Check that nothing that is left out beside splits is named as a split that is missing.

    Args:
        account: of :func:`account_beside`.
        datasets: what is read.

    Raises:
        ConfigError: ``test`` holds no samples of the format of ``train.csv``, or is a link that is not followed.
    """
    for left_out in account.unexplained:
        said = split_of(stem_of_name(left_out.name))
        is_lost = said is not None and said.is_exact and said.split not in datasets
        # Beside files of another format, a .bin file may hold anything.
        if not is_lost or format_of_name(left_out.name) == "bin":
            continue
        read = ", ".join(list(datasets)[:5])
        raise ConfigError(
            f"{account.place}: {left_out.name!r:.100} is named as a split, but is left out ({left_out.rule}). Change it, or "
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
                account = _account_of_folder(part.as_folder(), files.kind) if is_folder else None
                if account is not None:
                    accounts.append(account)
    return accounts


def _account_of_folder(folder: Folder, kind: str) -> PlaceAccount | None:
    """The account of a folder of a format that reads many files; None for another format."""
    if kind == "images":
        return ImageFolderIterator(folder).look_around()
    if kind == "webdataset":
        return account_of_shards(folder)
    if kind == "records":
        return _account_of_records(folder)
    if kind == "parquet":
        from data_stack.formats.parquet.files import find_files

        return find_files(folder).account
    return None


def _account_of_records(folder: Folder) -> PlaceAccount:
    """The account of a folder of records: of its columns, and of those of its shards."""
    files, links = folder.survey()
    read = [
        path
        for path in files
        if path.count("/") <= 1
        and (path.endswith((".bag", ".idx")) or path.rpartition("/")[2] in (SPEC, MANIFEST))
    ]
    return account_of(folder.full_name(""), read, files, _NO_RECORDS, links)


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
