"""The contract of a format: how its files are recognized, opened as samples, and written."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Final

import numpy.typing as npt

from data_stack.dataset.iterator import ColumnKey, DatasetIteratorIF
from data_stack.exception import ArgumentError
from data_stack.formats.column_source import ColumnSource, source_of_iterator
from data_stack.formats.dataset_files import DatasetFiles
from data_stack.formats.targets import with_target
from data_stack.io.account import PlaceAccount
from data_stack.io.folder import Folder
from data_stack.io.location import Location, explain_stand_in

#: The columns of some samples by name: arrays of shape ``(n, ...)``.
Batch = Mapping[str, npt.NDArray[Any]]

#: Writes the next batch of a dataset.
WriteBatch = Callable[[Batch], object]


def samples_of_batch(batch: Batch) -> Iterator[dict[str, Any]]:
    """Yield the samples of a batch one by one, as dicts."""
    names = list(batch)
    for values in zip(*batch.values(), strict=True):
        yield dict(zip(names, values, strict=True))


@dataclass(frozen=True, slots=True)
class ColumnChoice:
    """The columns that will be read. Other columns need not be readable, nor have as many values.

    Attributes:
        required: the names of the columns, or positions as text; None for all columns.
        optional: the names of further columns, which will be read if they exist.
    """

    required: tuple[str, ...] | None = None
    optional: tuple[str, ...] = ()


#: The choice of all columns.
ALL_COLUMNS: Final = ColumnChoice()


@dataclass(frozen=True)
class FormatOptions:
    """How to read a dataset of a format. This class has no options.

    A format with options derives a frozen dataclass. Its fields are further arguments of
    :func:`data_stack.load`, and each has a default::

        @dataclass(frozen=True)
        class LinesOptions(FormatOptions):
            encoding: str = "utf-8"
    """


class Format(ABC):
    """A format that :func:`data_stack.load` opens, and :func:`~data_stack.formats.convert` reads.

    ::

        @register_format
        class NpyFormat(Format):
            name = "npy"
            suffixes = {".npy": "application/x-npy"}

            def open(self, location, columns=ALL_COLUMNS, options=None):
                return NumpyDatasetIterator([location.open()])

    :meth:`open` is the only required method. A file is recognized by its suffix, a folder by
    :meth:`recognize`. All formats are imported together, so a module of a format imports heavy
    packages inside of the methods that need them.
    """

    #: The name of the format, as in ``load(path, format="csv")``.
    name: ClassVar[str]

    #: The suffixes of the format's files, each with its media type; empty if only folders are.
    suffixes: ClassVar[Mapping[str, str]] = MappingProxyType({})

    #: Whether files are read from start to end, so that they may be compressed.
    is_streamed: ClassVar[bool] = False

    #: Whether the suffix says little, so that such a file is not opened beside other datasets.
    is_suffix_vague: ClassVar[bool] = False

    #: The class of the options of :meth:`open`, a frozen dataclass.
    options_class: ClassVar[type[FormatOptions]] = FormatOptions

    #: The names of files that make a folder one dataset, because they list its other files.
    listing_files: ClassVar[frozenset[str]] = frozenset()

    #: The names of files beside samples that describe them, such as ``metadata.csv``.
    metadata_files: ClassVar[frozenset[str]] = frozenset()

    #: Whether a folder is of this format only if no other format recognizes it.
    is_fallback: ClassVar[bool] = False

    #: Whether the folders in a folder may be the classes of one dataset.
    has_class_folders: ClassVar[bool] = False

    #: Whether programs write folders of this format into their stores, where
    #: :func:`data_stack.load` finds a folder by its name.
    is_loaded_by_name: ClassVar[bool] = False

    # ------------------------------------------------------------------ recognizing

    def recognize(self, folder: Folder, names: Sequence[str]) -> bool:
        """Return whether a folder may be a dataset of this format.

        Args:
            folder: the folder.
            names: the names of the files and folders in it.
        """
        return False

    def is_class_folder(self, names: Sequence[str]) -> bool:
        """Return whether a folder that holds ``names`` has samples itself, not only in its folders.

        It is called only for formats with :attr:`has_class_folders`.
        """
        return False

    def list_splits(self, folder: Folder, names: Sequence[str]) -> list[str]:
        """Return the names of the splits that a file in a folder lists; none without such a file.

        Each split is a folder of this format, whatever its name.

        Args:
            folder: the folder.
            names: the names of the files and folders in it.

        Raises:
            DatasetFileCorruptError: the list is damaged, or a split is missing.
        """
        return []

    # ------------------------------------------------------------------ opening

    @classmethod
    def list_options(cls) -> list[str]:
        """Return the names of the options, sorted."""
        return sorted(field.name for field in dataclasses.fields(cls.options_class))

    @abstractmethod
    def open(
        self, location: Location, columns: ColumnChoice = ALL_COLUMNS, options: Any = None
    ) -> DatasetIteratorIF:
        """Open a dataset as samples.

        Args:
            location: the file or folder.
            columns: the columns that will be read. A format that can open some columns without
                the others opens no more than these; another format may open all columns.
            options: how to read the dataset, an instance of :attr:`options_class`; None for the
                defaults.

        Raises:
            ConfigError: a required column does not exist, or an option is invalid.
            DatasetFileCorruptError: the dataset is damaged, or of another format.
        """

    def open_parts(
        self, parts: Sequence[Location], columns: ColumnChoice = ALL_COLUMNS, options: Any = None
    ) -> list[DatasetIteratorIF]:
        """Open the parts of one dataset, whose samples follow one another.

        Args:
            parts: the files or folders, in order.
            columns: as for :meth:`open`.
            options: as for :meth:`open`.

        Returns:
            An iterator for each part; or a single one for all parts, if the format can make it.

        Raises:
            ConfigError: a required column does not exist, or an option is invalid.
            DatasetFileCorruptError: a part is damaged, or of another format.
        """
        opened = []
        for part in parts:
            with explain_stand_in(part):
                opened.append(self.open(part, columns, options))
        return opened

    def open_splits(
        self,
        datasets: Mapping[str, DatasetFiles],
        chosen: Sequence[str],
        columns: ColumnChoice = ALL_COLUMNS,
        options: Any = None,
    ) -> dict[str, list[DatasetIteratorIF]]:
        """Open some splits of a place.

        A format whose files do not say the types or classes of their values overrides this, so
        that types and classes are the same in all splits, whichever are chosen.

        Args:
            datasets: all datasets at the place by name; at least one is named as a split.
            chosen: the names of the datasets to open.
            columns: as for :meth:`open`.
            options: as for :meth:`open`.

        Returns:
            What :meth:`open_parts` returns, for each chosen dataset by name. Datasets that were
            not chosen may be among them.

        Raises:
            ConfigError: a required column does not exist, or an option is invalid.
            DatasetFileCorruptError: a dataset is damaged, or of another format.
        """
        return {name: self.open_parts(datasets[name].parts, columns, options) for name in chosen}

    def list_columns(self, samples: Any) -> list[ColumnKey]:
        """Return the names, or positions, of the columns of samples that :meth:`open` returned."""
        return list(samples.column_names)

    def with_target(self, samples: Any, location: Location, target: str | None) -> Any:
        """Return samples whose ``dataset_meta`` says which column is the target.

        Args:
            samples: what :meth:`open` returned.
            location: where the samples are from.
            target: the name of the column; None for the format's default, usually no target.

        Raises:
            ConfigError: the column does not exist.
        """
        if target is None:
            return samples
        return with_target(samples, location.name, self.list_columns(samples), target)

    def account_of(self, folder: Folder) -> PlaceAccount | None:
        """Return which files of a folder are read, and which are left out; None if all are read.

        The folder is listed, but its samples are not opened.
        """
        return None

    def open_source(
        self, location: Location, columns: ColumnChoice = ALL_COLUMNS, options: Any = None
    ) -> ColumnSource:
        """Open a dataset as columns for a conversion, which closes its ``resources``.

        Args:
            location: as for :meth:`open`.
            columns: as for :meth:`open`.
            options: as for :meth:`open`.

        Returns:
            A source with at least the required columns.

        Raises:
            ConfigError: a column cannot be converted, a required column does not exist, or an
                option is invalid.
            DatasetFileCorruptError: the dataset is damaged, or of another format.
        """
        samples = self.open(location, columns, options)
        return source_of_iterator(samples, location.full_name)


class WritableFormat(Format):
    """A format that :func:`~data_stack.formats.convert` also writes, by :meth:`writer`."""

    #: Whether a dataset can be written in several files, of a number of samples each.
    has_shards: ClassVar[bool] = False

    #: Whether images, sound and videos are written as the bytes of their files.
    keeps_files: ClassVar[bool] = True

    #: Whether the names of columns are stored; otherwise they are read as ``column_0`` ….
    keeps_names: ClassVar[bool] = True

    #: Whether the names of the classes of labels are stored.
    keeps_class_names: ClassVar[bool] = False

    #: Whether readers infer the types of values, so that they may read the text ``"7"`` as 7.
    infers_types: ClassVar[bool] = False

    #: Whether the format stores Decimals that the schema of the source declares.
    holds_decimals: ClassVar[bool] = False

    #: Whether the format stores columns with any number of values in each sample.
    holds_sequences: ClassVar[bool] = False

    def writes_folder(self, location: Location) -> bool:
        """Return whether a dataset that is written to ``location`` is a folder, not a file."""
        return True

    def check(self, source: ColumnSource, location: Location, shardlen: int | None) -> None:
        """Check that the format can hold the columns of a source, before anything is written.

        Values that only reading all samples would show are checked when they are written.

        Args:
            source: what is to be written.
            location: where it is to be written.
            shardlen: the number of samples in a shard; None for the format's default.

        Raises:
            ConfigError: the format cannot hold a column; the message names the column.
        """
        for name, column in source.schema.items():
            is_declared_decimal = source.declared[name].dtype == "Decimal"
            can_hold_decimals = self.holds_decimals and is_declared_decimal
            if column.type == "decimal" and not can_hold_decimals:
                raise ArgumentError(
                    f"column {name!r} holds Decimals; Parquet stores those of tables; "
                    "leave it out of",
                    "columns",
                )
            if column.is_sequence and not self.holds_sequences:
                raise ArgumentError(
                    f"column {name!r} holds sequences, which only records store; leave it out of",
                    "columns",
                )

    @abstractmethod
    def writer(
        self, location: Location, source: ColumnSource, *, name: str, shardlen: int | None
    ) -> AbstractContextManager[WriteBatch]:
        """Open a new dataset for writing.

        ::

            with NpzFormat().writer(location, source, name="a.npz", shardlen=None) as write_batch:
                write_batch({"x": np.arange(10)})

        The dataset is complete when the block ends cleanly. A block that raises leaves at most
        files that do not look like a dataset, which the caller removes.

        Args:
            location: where nothing is yet. A folder gets its final name when it is complete.
            source: the dataset that will be written, for its schema.
            name: the final name of the dataset.
            shardlen: the number of samples in a shard; None for the format's default.

        Returns:
            A context manager that yields a function, which writes the next batch.

        Raises:
            ConfigError: the format cannot hold a value; the message names the column.
        """
