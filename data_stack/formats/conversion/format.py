"""What a format of stored datasets declares about itself, and the registry of formats."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

from data_stack.exception import ConfigError
from data_stack.formats.conversion.source import Source
from data_stack.io.folder import Folder
from data_stack.io.location import Location
from data_stack.util.suggestions import did_you_mean

Batches = Iterable[dict[str, Any]]
"""The columns of a dataset, batch by batch."""

_FormatClass = TypeVar("_FormatClass", bound="type[Format]")
_formats: dict[str, Format] = {}


class Format:
    """A format that :func:`data_stack.load` recognizes by the suffix of a file.

    ::

        @register_format
        class CSVFormat(Format):
            name, suffixes, is_streamed = "csv", {".csv": "text/csv"}, True
    """

    #: Its name, as in ``load(path, format="csv")``.
    name: ClassVar[str]
    #: The suffixes of its files, with the media type of each.
    suffixes: ClassVar[Mapping[str, str]] = MappingProxyType({})
    #: Files are read from start to end, so they may be compressed.
    is_streamed: ClassVar[bool] = False
    #: Options that :func:`data_stack.load` passes on when it opens a file of the format.
    options: ClassVar[frozenset[str]] = frozenset()


@dataclass(frozen=True)
class Destination:
    """Where a conversion writes.

    Attributes:
        location: where the dataset will be.
        place: where it is written; another place than ``location`` for a folder that is renamed when it is complete.
        shardlen: number of samples in a shard; None for the format's default.
    """

    location: Location
    place: Location
    shardlen: int | None


class ConvertibleFormat(Format, ABC):
    """A format that :func:`~data_stack.formats.convert` reads and writes."""

    has_shards: ClassVar[bool] = False
    #: Whether images, sound and videos are written as the bytes of their files.
    keeps_files: ClassVar[bool] = True
    #: Whether only a folder that no other format recognizes can be of this format.
    is_fallback: ClassVar[bool] = False

    def is_folder(self, location: Location) -> bool:
        """Whether a dataset at ``location`` is a folder, not a file."""
        return True

    def recognizes(self, folder: Folder, names: Sequence[str]) -> bool:
        """Whether a folder that holds ``names`` may be a dataset of this format."""
        return False

    @abstractmethod
    def open(self, location: Location) -> Source:
        """Open the dataset at ``location``.

        Raises:
            ConfigError: it has no columns that can be converted.
            DatasetFileCorruptError: it is damaged, or of another format.
        """

    def check(self, source: Source, destination: Destination) -> None:
        """Check whether the format can hold the columns, as far as that is known before anything is written.

        Raises:
            ConfigError: it cannot; the message names the column.
        """
        shardlen = destination.shardlen
        if shardlen is not None and shardlen < 1:
            raise ConfigError(f"shardlen must be at least 1, got {shardlen}")
        if shardlen is not None and not self.has_shards:
            raise ConfigError(f"{self.name} has no shards; leave shardlen out, or choose records, parquet or webdataset")
        for name, column in source.schema.items():
            if column.type == "decimal":
                raise ConfigError(f"column {name!r} holds Decimals, which only Parquet stores; leave it out (--columns …)")
            if column.is_sequence and self.name != "records":
                raise ConfigError(
                    f"column {name!r} holds sequences ({column.type}), which only records store; leave it out: --columns …"
                )

    @abstractmethod
    def write(self, source: Source, destination: Destination, batches: Batches) -> None:
        """Write the dataset at ``destination.place``, which is empty."""


def register_format(format_class: _FormatClass) -> _FormatClass:
    """Register a format by its name; a class decorator."""
    _formats[format_class.name] = format_class()
    return format_class


def registered_formats() -> Mapping[str, Format]:
    """All formats by name. The modules of :mod:`~data_stack.formats.conversion.kinds` import no heavy package at their top."""
    _import_own()
    return _formats


def convertible_formats() -> dict[str, ConvertibleFormat]:
    """The formats that can be converted, by name."""
    return {name: each for name, each in registered_formats().items() if isinstance(each, ConvertibleFormat)}


def format_named(name: str) -> ConvertibleFormat:
    """The convertible format of a name.

    Raises:
        ConfigError: there is no such format.
    """
    formats = convertible_formats()
    if name.lower() not in formats:
        raise ConfigError(f"unknown format {name!r:.40}{did_you_mean(name, formats)}; known formats: {', '.join(formats)}")
    return formats[name.lower()]


def format_of_suffix(suffix: str) -> Format | None:
    """The format of files whose names end in ``suffix``, such as ``".h5"``; None if it is unknown."""
    return next((each for each in registered_formats().values() if suffix in each.suffixes), None)


def open_source(location: Location, name: str) -> Source:
    """Open the dataset at ``location``, which is of the format ``name``; the caller closes it.

    Raises:
        ConfigError: it has no columns that can be converted.
        DatasetFileCorruptError: it is damaged, or of another format.
    """
    return format_named(name).open(location)


@functools.cache
def _import_own() -> None:
    package = f"{__package__}.kinds"
    for module in pkgutil.iter_modules([str(Path(__file__).parent / "kinds")]):
        importlib.import_module(f"{package}.{module.name}")
