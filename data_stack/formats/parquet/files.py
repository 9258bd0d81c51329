"""Finds the Parquet files of a dataset."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final
from urllib.parse import unquote

from data_stack.exception import (
    ConfigError,
    DatasetFileCorruptError,
    MissingFileError,
    ResourceNotFoundError,
)
from data_stack.formats.managed_tables import refuse_managed_table
from data_stack.formats.parquet.arrow_folder import ArrowFolder, arrow_folder_of, is_of_hadoop
from data_stack.formats.parquet.manifest import ParquetManifest
from data_stack.formats.parquet.metadata_files import (
    COMMON_METADATA,
    PARQUET_MANIFEST,
    PROGRESS_FOLDER,
    find_metadata,
)
from data_stack.formats.parquet.open_files import open_local, open_resource
from data_stack.formats.split_names import warn_of_splits
from data_stack.io.account import HIDDEN, LeftOut, PlaceAccount, account_of, is_document
from data_stack.io.folder import Folder, LocalFolder, folder_of
from data_stack.io.location import Location, location_of
from data_stack.util.executor import waiting

#: Suffixes of files of rows; Hive writes none.
SUFFIXES: Final = (".parquet", ".parq", ".pq")
#: The first bytes of a Parquet file: "PAR1", or "PARE" if its footer is encrypted.
_MAGICS: Final = (b"PAR1", b"PARE")
#: Number of files that are opened at once to read their first bytes.
_N_AT_ONCE: Final = 16
#: The rule that leaves out files that are not Parquet, in the account of the folder.
NO_PARQUET: Final = "no Parquet, by its name or its first bytes"
#: Stands for null in the name of a folder, as Hive writes it.
NULL_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class ParquetFiles:
    """The files of a dataset, in the order of their paths, or as they were listed.

    Attributes:
        folder: the folder of the dataset.
        paths: the path of each file in the folder.
        partitions: the texts in the names of each file's folders (``day=2024-01-01``), None for
            null.
        given: whether the caller named the files, instead of a folder.
        beside: the paths of the metadata files that exist: ``_common_metadata`` and the manifest.
        account: what else is in the folder, and why it is left out.
    """

    folder: Folder
    paths: tuple[str, ...]
    partitions: tuple[Mapping[str, str | None], ...]
    given: bool
    beside: tuple[str, ...]
    account: PlaceAccount

    @property
    def n_files(self) -> int:
        """Number of files."""
        return len(self.paths)

    @property
    def is_local(self) -> bool:
        """Whether the files have paths on this machine; otherwise they are in a store."""
        return self.folder.path is not None

    def open(self, number: int) -> Any:
        """Open a file for pyarrow. The caller closes it, with a ``with`` block.

        The result is a native file of pyarrow if possible, because native files are read without
        the GIL.

        Args:
            number: the number of the file.

        Raises:
            ResourceNotFoundError, StorageError: the file cannot be opened.
        """
        folder = self.folder
        path = self.paths[number]
        if isinstance(folder, ArrowFolder):
            return folder.open_for_arrow(path)
        if folder.path is None:
            return open_resource(folder.open(path))
        if isinstance(folder, LocalFolder) and not self.given:
            return open_local(folder.path_of(path))  # refuses links out of the folder
        return open_local(os.path.join(folder.path, path))

    def version(self, number: int, source: Any) -> Any:
        """Return the version of an open file, which changes when the file is replaced.

        Args:
            number: the number of the file.
            source: the file, as :meth:`open` returned it.

        Returns:
            The version; None where the store has no versions.
        """
        if isinstance(self.folder, ArrowFolder):
            return self.folder.version(self.paths[number], source)
        return source.version

    def name(self, number: int) -> str:
        """Return the name of a file in messages; of a local file, its path."""
        path = self.paths[number]
        if self.is_local:
            return self.folder.full_name(path)
        return self.folder.describe(path)


def find_files(source: Any, prefix: str = "", *, filesystem: Any = None) -> ParquetFiles:
    """Find the Parquet files at ``source``.

    Args:
        source: a folder, a file (its path, a resource, or an open binary file), a list of files, a
            storage connector, a URL, or resources of a dataset.
        prefix: folder below it.
        filesystem: a file system of pyarrow or fsspec, in which ``source`` is a path.

    Raises:
        ResourceNotFoundError: ``source`` has no Parquet files.
        ConfigError: ``source`` is something else.
        DatasetFileCorruptError: the writer of the dataset has not finished.
    """
    folder, paths = folder_and_paths(source, prefix, filesystem=filesystem)
    if paths is None:
        return _files_of_folder(folder)
    metadata_files = filter(folder.has_file, (COMMON_METADATA, PARQUET_MANIFEST))
    return ParquetFiles(
        folder=folder,
        paths=tuple(paths),
        partitions=tuple({} for _ in paths),
        given=True,
        beside=find_metadata(folder, metadata_files),
        account=PlaceAccount(folder.full_name(""), len(paths)),
    )


def _files_of_folder(folder: Folder) -> ParquetFiles:
    """Find the Parquet files of a folder; raises as :func:`find_files`."""
    tree, left_out = folder.survey()  # it leaves out links that lead out of the folder
    refuse_managed_table(folder, tree)
    beside = find_metadata(folder, tree)
    if any(path.startswith(f"{PROGRESS_FOLDER}/") for path in tree):
        # a writer is at work, or was interrupted
        tree = _files_before_the_writer(folder)
    paths = _files_of_rows(folder, tree)
    visible = []
    for path in tree:
        if not is_hidden(path):
            visible.append(path)
        elif path not in beside:
            left_out.append(LeftOut(path, HIDDEN))
    account = account_of(folder.full_name(""), paths, visible, NO_PARQUET, left_out)
    if not beside:
        _warn_of_splits(folder, paths)
        if not paths:
            raise _no_files_error(folder, account)
    return ParquetFiles(
        folder=folder,
        paths=tuple(paths),
        partitions=tuple(partition_of(path) for path in paths),
        given=False,
        beside=beside,
        account=account,
    )


def _files_before_the_writer(folder: Folder) -> list[str]:
    """Return the paths of the files that were complete before an unfinished writer began.

    Raises:
        DatasetFileCorruptError: there are none.
    """
    manifest = ParquetManifest.read(folder)
    if manifest is None:
        raise DatasetFileCorruptError(
            f"{folder!r} is not finished: its writer was interrupted, or is still writing"
        )
    return [file.name for file in manifest.files]


def _no_files_error(folder: Folder, account: PlaceAccount) -> ResourceNotFoundError:
    """Return the error that says that a folder has no Parquet files, or does not exist."""
    if folder.path is not None and not folder.path.exists():
        return MissingFileError(str(folder.path))
    summary = account.summary()
    what_it_holds = f"; it holds {summary}" if summary else ""
    return ResourceNotFoundError(f"{folder.name or folder!r} has no Parquet files{what_it_holds}")


def _files_of_rows(folder: Folder, tree: Sequence[str]) -> list[str]:
    """Return the files with rows of a dataset, in the order of its files.

    Those are the files with a suffix of Parquet in any case, and those without a suffix, as Hive
    and Spark write them. Beside files with a suffix, one without counts if it begins as Parquet
    does.
    """
    with_suffix = []
    without_suffix = []
    for path in tree:
        if is_hidden(path):
            continue
        if has_suffix(path):
            with_suffix.append(path)
        elif "." not in PurePosixPath(path).name and not is_document(path):
            without_suffix.append(path)
    if not with_suffix:
        return without_suffix
    if not without_suffix:
        return with_suffix
    files_of_rows = set(with_suffix)
    begins_as_parquet = functools.partial(_begins_as_parquet, folder)
    are_parquet = waiting.map(begins_as_parquet, without_suffix, at_once=_N_AT_ONCE)
    for path, is_parquet in zip(without_suffix, are_parquet, strict=True):
        if is_parquet:
            files_of_rows.add(path)
    return [path for path in tree if path in files_of_rows]


def _begins_as_parquet(folder: Folder, path: str) -> bool:
    """Whether a file begins with the magic bytes of Parquet; False for what is not a file."""
    try:
        with folder.open(path) as resource:
            return resource.read_at(0, 4) in _MAGICS
    except ResourceNotFoundError:  # a pipe, a device, or removed meanwhile
        return False


def has_suffix(path: str) -> bool:
    """Whether the name of a file ends as those of Parquet do, in any case."""
    return path.lower().endswith(SUFFIXES)


def _warn_of_splits(folder: Folder, paths: Sequence[str]) -> None:
    """Warn if the files of one dataset, or the folders that hold them, are named as splits."""
    split_names = {}
    for path in paths:
        name, slash, _ = path.partition("/")
        if slash:  # a folder
            split_names[name] = name
        else:
            split_names[name] = name.removesuffix(PurePosixPath(name).suffix)
    advice = "name a file, list the files of a split, or pass prefix="
    warn_of_splits(folder.name or repr(folder), split_names, advice)


# ---------------------------------------------------------------------- from a source to a folder


def folder_and_paths(
    source: Any, prefix: str = "", *, filesystem: Any = None
) -> tuple[Folder, list[str] | None]:
    """Return the folder of a dataset, and the files that ``source`` names.

    Args:
        source: see :func:`find_files`.
        prefix: folder below it.
        filesystem: a file system of pyarrow or fsspec, in which ``source`` is a path.

    Returns:
        The folder, and the paths of the files in it; None if ``source`` is a folder.

    Raises:
        ConfigError: ``source`` is something else.
        StorageError: it cannot be reached.
    """
    # A list of files, each given in any of the ways below.
    if isinstance(source, (list, tuple)):
        places = [folder_and_paths(item, prefix, filesystem=filesystem) for item in source]
        return _folder_of_list(places)

    # A resource of a dataset, or an open binary file.
    if isinstance(source, Location):
        if not source.is_file():
            return source.as_folder(), None
        source.local_file()  # raises if it was found in a folder, and is a link out of it
        return source.folder, [source.name]
    if not isinstance(source, Folder) and hasattr(source, "read"):
        location = location_of(source)
        return location.folder, [location.name]

    # A folder, and below it the prefix, which may end at a file.
    folder = _folder_of(source, filesystem)
    for segment in prefix.split("/"):
        if not segment:
            continue
        if has_suffix(segment) and folder.has_file(segment):
            return folder, [segment]
        folder = folder.subfolder(segment)

    # A path that names a file.
    if folder.path is not None and folder.path.is_file():
        return folder_of(folder.path.parent), [folder.path.name]
    if isinstance(folder, ArrowFolder):
        name_of_parent, _, name = folder.name.rpartition("/")
        parent = ArrowFolder(folder.filesystem, name_of_parent)
        if parent.has_file(name):
            return parent, [name]
    return folder, None


def _folder_of(source: Any, filesystem: Any) -> Folder:
    """Return ``source`` as a folder: of pyarrow in a filesystem or HDFS, else one of data_stack."""
    if filesystem is not None or is_of_hadoop(source):
        return arrow_folder_of(source, filesystem)
    return folder_of(source)


def _folder_of_list(
    places: list[tuple[Folder, list[str] | None]],
) -> tuple[Folder, list[str]]:
    """Return the folder above all files of a list, and their paths in it."""
    if not places:
        raise ConfigError("the list of Parquet files is empty")
    files: list[tuple[Folder, str]] = []
    for folder, paths in places:
        if paths is None:
            raise ConfigError(
                "a list of Parquet files must contain files only; pass a folder alone"
            )
        for path in paths:
            files.append((folder, path))
    if all(folder.path is not None for folder, _ in files):
        return _folder_of_local_files([folder.full_name(path) for folder, path in files])
    descriptions = {folder.describe("") for folder, _ in files}
    if len(descriptions) != 1:
        raise ConfigError("all files of a list must be in the same folder")
    folder_of_all, _ = files[0]
    return folder_of_all, [path for _, path in files]


def _folder_of_local_files(files: list[str]) -> tuple[Folder, list[str]]:
    """Return the innermost folder above all local files, and their POSIX paths in it."""
    common = os.path.commonpath([os.path.dirname(file) for file in files])
    paths = [os.path.relpath(file, common).replace(os.sep, "/") for file in files]
    return folder_of(common), paths


# ---------------------------------------------------------------------- names of folders


def partition_of(path: str) -> dict[str, str | None]:
    """Return the values in the names of the folders of a path, as Hive writes them."""
    values: dict[str, str | None] = {}
    for folder in path.split("/")[:-1]:
        name, equals, text = folder.partition("=")
        if not equals or not name:
            continue
        value = None
        if text != NULL_PARTITION:
            value = unquote(text)
        values[unquote(name)] = value
    return values


def partition_names(partitions: Sequence[Mapping[str, str | None]]) -> list[str]:
    """Return the names of all partition columns, in the order of the folders."""
    names: dict[str, None] = {}
    for values in partitions:
        names.update(dict.fromkeys(values))
    return list(names)


def is_hidden(path: str) -> bool:
    """Whether tools ignore a file.

    Its name, or the name of a folder, begins with ``_`` or ``.`` and has no ``=``.
    """
    return any(part.startswith(("_", ".")) and "=" not in part for part in path.split("/"))
