"""Files and folders as datasets: ``data_stack.load("./pictures")`` recognises and opens them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.dataset.recipes.nodes import note_place
from data_stack.exception import ConfigError, DataStackError, UnknownSplitError
from data_stack.formats.dataset_files import DatasetFiles
from data_stack.formats.opening import open_as as open_as
from data_stack.formats.opening import open_splits
from data_stack.formats.place_accounts import (
    account_beside,
    account_of_datasets,
    check_no_split_is_left_out,
)
from data_stack.formats.place_splits import find_places
from data_stack.formats.registry import format_named, format_of_file, stem_of_file
from data_stack.io.location import Location, location_of
from data_stack.io.progress import progress_as
from data_stack.repository.dataset_names import PlaceName
from data_stack.repository.default_storage import Storage, as_storage_connector
from data_stack.repository.description import DatasetDescription
from data_stack.repository.split_expressions import load_expression
from data_stack.show.splits import Splits
from data_stack.util.suggestions import did_you_mean


@dataclass(frozen=True)
class Place:
    """Files at a path or URL, or under a name of a store, which are opened as they are.

    Attributes:
        name: the path or URL as it was written; or the name in the store.
        location: where the files are. They are listed once, at the first question.
    """

    name: str
    location: Location

    #: Files have no version.
    version = None

    @classmethod
    def at(cls, name: PlaceName) -> Place:
        """Return the place that a path or URL names; whether something is there is not asked yet.

        Raises:
            ConfigError: it is a URL that names nothing in a store.
        """
        if name.url is None:
            location = location_of(name.text)
        else:
            location = location_of(name.url)
        return cls(name.text, location.listed())

    @property
    def factory(self) -> NoReturn:
        """A place has no factory.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(
            f"{self.name!r:.200} is a file or folder, which has no factory; load, show or browse it"
        )

    def describe(self) -> DatasetDescription:
        """Return the path, the splits, and what is left out.

        Raises:
            ConfigError: the place is empty, or its format is not recognised.
        """
        datasets = find_places(self.location)
        accounts = [
            account_beside(self.location, datasets),
            *account_of_datasets(datasets.values()),
        ]
        left_out = []
        for account in accounts:
            place = account.place.rstrip("/")
            for item in account.unexplained:
                left_out.append(f"{place}: {item.name!r} ({item.rule})")
        formats = sorted({files.kind for files in datasets.values()})
        return DatasetDescription(
            self.name,
            description=f"Files of the format {', '.join(formats)}.",
            splits=_names_of_splits(datasets),
            left_out=tuple(left_out),
        )

    def check_license(self) -> None:
        """Do nothing: files have no card, so no policy applies."""

    def load(
        self,
        split: str | Sequence[str] | None = None,
        *,
        progress: bool | None = None,
        format: str | None = None,  # noqa: A002  # what users call it
        target: str | None = None,
        columns: Sequence[str] | None = None,
        **options: Any,
    ) -> Any:
        """Load the samples.

        Those of a CSV or JSON lines file are read at once, others when they are used.

        Args:
            split: of a folder with a file or folder for each split, such as ``train.csv`` and
                ``test.csv``; None for all splits. See :func:`data_stack.load`.
            progress: draw bars.
            format: the name of a format; None to detect it by names and contents.
            target: the column of the target.
            columns: a selection, in this order.
            options: of the format: those of :func:`data_stack.from_csv`,
                :func:`data_stack.from_jsonl` and :func:`data_stack.from_folder`; of Parquet
                ``nulls``, see :class:`~data_stack.formats.parquet.ParquetDataset`.

        Returns:
            An iterator; of a folder with splits a dict of one for each, unless ``split`` names one.

        Raises:
            ConfigError: the place is empty, its format is not recognised, or it lacks the column or
                option.
            UnknownSplitError: the place has no such split.
            DatasetFileCorruptError: a file is damaged, or of another format.
        """

        def load_split(name: str | None) -> Any:
            return self._load_split(name, format, target, columns, options)

        def list_names() -> tuple[str, ...]:
            return _names_of_splits(find_places(self.location, format))

        with progress_as(progress):
            return load_expression(load_split, split, list_names)

    def _load_split(
        self,
        split: str | None,
        format_name: str | None,
        target: str | None,
        columns: Sequence[str] | None,
        options: Mapping[str, Any],
    ) -> Any:
        """Load the split of this name; for None, all splits, or the one dataset."""
        datasets = find_places(self.location, format_name)
        if split is not None and split not in datasets:
            raise self._unknown_split(split, datasets)
        if format_name is None:
            # (A user who names the format wants the files of that format only.)
            account = account_beside(self.location, datasets)
            check_no_split_is_left_out(account, datasets)
            account.warn()
        names = list(datasets)
        if split is not None:
            names = [split]
        opened = open_splits(datasets, names, target, columns, options)

        all_options = {"format": format_name, "target": target, "columns": columns, **options}
        if _is_one_dataset(datasets):
            (iterator,) = opened.values()
            self._note_origin(iterator, None, all_options)
            return iterator
        for name, iterator in opened.items():
            self._note_origin(iterator, name, all_options)
        if split is not None:
            return opened[split]
        return Splits(opened)

    def _note_origin(
        self, iterator: DatasetIteratorIF, split: str | None, options: Mapping[str, Any]
    ) -> None:
        """Note for recipes where the samples are from; files of a store are in no recipe."""
        path = self.location.path
        if path is not None:
            given_options = {name: value for name, value in options.items() if value is not None}
            note_place(iterator, str(path), split, given_options)

    def _unknown_split(self, split: str, datasets: Mapping[str, DatasetFiles]) -> UnknownSplitError:
        known = "none: it is one dataset, which is loaded without split="
        if not _is_one_dataset(datasets):
            known = ", ".join(datasets)
        return UnknownSplitError(
            f"{self.location.full_name} has no split {split!r:.60}{did_you_mean(split, datasets)}; "
            f"its splits are {known}"
        )


def _is_one_dataset(datasets: Mapping[str, DatasetFiles]) -> bool:
    """Return whether a place is one dataset, without splits."""
    first = next(iter(datasets.values()))
    return first.is_place


def _names_of_splits(datasets: Mapping[str, DatasetFiles]) -> tuple[str, ...]:
    """Return the names of the splits at a place; none for one dataset without splits."""
    return tuple(name for name, files in datasets.items() if not files.is_place)


def find_in_store(name: str, storage: Storage) -> Place | None:
    """Return the dataset that a program wrote into a store under a name; None without one.

    The dataset is of a format that programs write into stores, such as records or Parquet.

    Args:
        name: the name of the folder in the store, which may have a folder for each split.
        storage: the store.
    """
    try:
        location = location_of((as_storage_connector(storage), name)).listed()
        datasets = find_places(location)
    except DataStackError:
        # No place can have this name, the store cannot be reached, or nothing is there: the caller
        # reports that no dataset has the name.
        return None
    are_loaded_by_name = all(
        format_named(files.kind).is_loaded_by_name for files in datasets.values()
    )
    if not are_loaded_by_name:
        return None
    return Place(name, location)


# ---------------------------------------------------------------------- for plugins


def format_of_name(name: str) -> str | None:
    """Return the name of a file's format by the suffix of the file; None if it is unknown."""
    known_format = format_of_file(name)
    if known_format is None:
        return None
    return known_format.name


def stem_of_name(name: str) -> str:
    """Return the name of a file without the suffix of its format.

    ``a.b.csv.gz`` becomes ``a.b``; a name without such a suffix stays as it is.
    """
    return stem_of_file(name)
