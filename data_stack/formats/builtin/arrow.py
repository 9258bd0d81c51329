"""The format of Arrow files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.formats.column_source import ColumnSource
from data_stack.formats.format import (
    ALL_COLUMNS,
    ColumnChoice,
    FormatOptions,
    WritableFormat,
    WriteBatch,
)
from data_stack.formats.registry import register_format
from data_stack.formats.split_names import warn_of_missing_parts
from data_stack.io.account import PlaceAccount, account_of
from data_stack.io.folder import Folder
from data_stack.io.location import Location

#: Why a file in a folder of ``save_to_disk`` is not read.
_NOT_LISTED: Final = "not listed in state.json"


@dataclass(frozen=True)
class ArrowOptions(FormatOptions):
    """The options of Arrow files.

    :class:`~data_stack.formats.arrow_ipc.ArrowDataset` documents them.
    """

    image_mode: str | None = None


_DEFAULTS: Final = ArrowOptions()


@register_format
class ArrowFormat(WritableFormat):
    """An Arrow file, or a folder that ``save_to_disk`` of Hugging Face's ``datasets`` wrote."""

    name = "arrow"
    suffixes = {
        ".arrow": "application/vnd.apache.arrow.file",
        ".feather": "application/vnd.apache.arrow.file",
        ".arrows": "application/vnd.apache.arrow.stream",
    }
    options_class = ArrowOptions
    holds_decimals = True
    keeps_class_names = True

    def recognize(self, folder: Folder, names: Sequence[str]) -> bool:
        from data_stack.formats.saved_dataset import is_saved_dataset

        return is_saved_dataset(names)

    def list_splits(self, folder: Folder, names: Sequence[str]) -> list[str]:
        from data_stack.formats.saved_dataset import SPLITS, read_split_names

        if SPLITS not in names:
            return []
        return read_split_names(folder, names)

    def open(
        self,
        location: Location,
        columns: ColumnChoice = ALL_COLUMNS,
        options: ArrowOptions | None = None,
    ) -> DatasetIteratorIF:
        from data_stack.formats.arrow_ipc.opening import open_files, open_folder

        image_mode = (options or _DEFAULTS).image_mode
        if location.is_file():
            return open_files([location], columns, image_mode=image_mode)
        account = self.account_of(location.as_folder())
        if account is not None:
            account.warn()
        warn_of_missing_parts(location.full_name, location.as_folder().list_names())
        return open_folder(location, columns, tuple(self.suffixes), image_mode)

    def open_parts(
        self,
        parts: Sequence[Location],
        columns: ColumnChoice = ALL_COLUMNS,
        options: ArrowOptions | None = None,
    ) -> list[DatasetIteratorIF]:
        from data_stack.formats.arrow_ipc.opening import open_files

        are_files = all(part.is_file() for part in parts)
        if len(parts) > 1 and are_files:
            image_mode = (options or _DEFAULTS).image_mode
            return [open_files(parts, columns, image_mode=image_mode)]
        return super().open_parts(parts, columns, options)

    def with_target(self, samples: Any, location: Location, target: str | None) -> Any:
        from data_stack.formats.arrow_ipc.opening import with_target_of_features

        return with_target_of_features(samples, location.name, target)

    def account_of(self, folder: Folder) -> PlaceAccount | None:
        from data_stack.formats.saved_dataset import STATE, read_saved_dataset

        names = folder.list_names()
        if STATE not in names:
            return None
        saved = read_saved_dataset(folder)
        read = [*saved.data_files, *saved.indices_files]
        return account_of(folder.full_name(""), read, names, _NOT_LISTED)

    def open_source(
        self,
        location: Location,
        columns: ColumnChoice = ALL_COLUMNS,
        options: ArrowOptions | None = None,
    ) -> ColumnSource:
        from data_stack.formats.arrow_ipc.opening import source_of_arrow

        return source_of_arrow(self.open(location, columns, options), location.full_name)

    # ------------------------------------------------------------------ writing

    def writes_folder(self, location: Location) -> bool:
        return False

    def check(self, source: ColumnSource, location: Location, shardlen: int | None) -> None:
        from data_stack.formats.arrow_ipc.writer import schema_of_others, tensors_of

        super().check(source, location, shardlen)
        schema_of_others(location.name, source, tensors_of(source))

    @contextlib.contextmanager
    def writer(
        self, location: Location, source: ColumnSource, *, name: str, shardlen: int | None
    ) -> Iterator[WriteBatch]:
        from data_stack.formats.arrow_ipc.writer import ArrowWriter

        with location.folder.create(location.name) as file:
            writer = ArrowWriter(file, name, source)
            yield writer.write
            writer.finish()
