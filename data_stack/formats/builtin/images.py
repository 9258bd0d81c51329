"""The format of folders of images."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from data_stack.codecs.codec import ColumnType
from data_stack.codecs.registry import types_by_extension
from data_stack.dataset.iterator import ColumnKey, DatasetIteratorIF
from data_stack.exception import ArgumentError, ConfigError
from data_stack.formats.column_source import ColumnSource
from data_stack.formats.column_types import infer_column, plain_type
from data_stack.formats.dataset_files import DatasetFiles
from data_stack.formats.format import (
    ALL_COLUMNS,
    Batch,
    ColumnChoice,
    FormatOptions,
    WritableFormat,
    WriteBatch,
    samples_of_batch,
)
from data_stack.formats.image_files import METADATA_OF_IMAGES, holds_images, holds_images_below
from data_stack.formats.image_folder import ImageFolderIterator, types_of_contents, with_labels
from data_stack.formats.image_folder_writer import ImageFolderWriter
from data_stack.formats.image_splits import open_splits_of_images
from data_stack.formats.registry import register_format
from data_stack.io.account import PlaceAccount
from data_stack.io.folder import Folder
from data_stack.io.location import Location

#: The types of columns, besides the images, that the metadata file holds as JSON.
_METADATA_TYPES: Final = frozenset({"utf8", "i64", "u64", "int", "json", "array"})


@dataclass(frozen=True)
class ImagesOptions(FormatOptions):
    """The options of folders of images.

    :class:`~data_stack.formats.ImageFolderIterator` documents them.
    """

    on_error: Literal["raise", "skip"] = "raise"
    class_names: Sequence[str] | None = None


_DEFAULTS: Final = ImagesOptions()


@register_format
class ImagesFormat(WritableFormat):
    """A folder of images, with a folder for each class."""

    name = "images"
    options_class = ImagesOptions
    metadata_files = frozenset(METADATA_OF_IMAGES)
    is_fallback = True
    has_class_folders = True

    def recognize(self, folder: Folder, names: Sequence[str]) -> bool:
        return holds_images_below(folder, names)

    def is_class_folder(self, names: Sequence[str]) -> bool:
        return holds_images(names)

    def open(
        self,
        location: Location,
        columns: ColumnChoice = ALL_COLUMNS,
        options: ImagesOptions | None = None,
    ) -> DatasetIteratorIF:
        return _open_images(location, options or _DEFAULTS)

    def open_splits(
        self,
        datasets: Mapping[str, DatasetFiles],
        chosen: Sequence[str],
        columns: ColumnChoice = ALL_COLUMNS,
        options: ImagesOptions | None = None,
    ) -> dict[str, list[DatasetIteratorIF]]:
        """Open the images of all splits, whose classes have the same numbers."""
        first_dataset = next(iter(datasets.values()))
        folder = first_dataset.parts[0].folder
        names = {split: [part.name for part in files.parts] for split, files in datasets.items()}
        options = options or _DEFAULTS
        opened = open_splits_of_images(
            folder, names, on_error=options.on_error, class_names=options.class_names
        )
        return {split: list(iterators) for split, iterators in opened.items()}

    def list_columns(self, samples: Any) -> list[ColumnKey]:
        return list(samples.fields)

    def with_target(self, samples: Any, location: Location, target: str | None) -> Any:
        return with_labels(samples, target)

    def account_of(self, folder: Folder) -> PlaceAccount:
        return ImageFolderIterator(folder).look_around()

    def open_source(
        self,
        location: Location,
        columns: ColumnChoice = ALL_COLUMNS,
        options: ImagesOptions | None = None,
    ) -> ColumnSource:
        options = options or _DEFAULTS
        images = _open_images(location, options)
        types = types_of_contents(images)
        schema = {}
        stored = None
        if len(types) == 1:
            schema["image"] = ColumnType(types.pop())
            stored = _open_images(location, options, decode=False)
        else:
            # Images of several types become PNG, which is lossless.
            schema["image"] = ColumnType("png")
        # The image is the first field; all others are metadata or classes.
        for name in images.fields[1:]:
            schema[name] = infer_column(images.read_column(name).tolist(), name)
        keys: dict[str, ColumnKey] = {name: name for name in schema}
        return ColumnSource(location.full_name, images, schema, keys, stored)

    def check(self, source: ColumnSource, location: Location, shardlen: int | None) -> None:
        super().check(source, location, shardlen)
        if "image" not in source.schema:
            raise ArgumentError(
                f"there is no column 'image' in {', '.join(source.schema)}; rename one by",
                "columns",
            )
        image_types = {"array", "npy", *types_by_extension("image").values()}
        for name, column in source.schema.items():
            type_name = plain_type(column.type)
            if name == "image" and type_name not in image_types:
                raise ConfigError(
                    f"column 'image' is of type {column.type!r}, which is not an image type"
                )
            if name != "image" and type_name not in _METADATA_TYPES:
                raise ArgumentError(
                    f"column {name!r} is of type {column.type!r}, which JSON cannot hold; "
                    "leave it out of",
                    "columns",
                )

    @contextlib.contextmanager
    def writer(
        self, location: Location, source: ColumnSource, *, name: str, shardlen: int | None
    ) -> Iterator[WriteBatch]:
        with ImageFolderWriter(location.as_folder()) as writer:

            def write_batch(batch: Batch) -> None:
                for sample in samples_of_batch(batch):
                    _check_shape(sample["image"])
                    writer.append(sample)

            yield write_batch


def _open_images(
    location: Location, options: ImagesOptions, *, decode: bool = True
) -> ImageFolderIterator:
    """Open a folder of images as arrays, or without ``decode`` as the bytes of their files."""
    return ImageFolderIterator(
        location.as_folder(),
        decode=decode,
        on_error=options.on_error,
        class_names=options.class_names,
    )


def _check_shape(image: Any) -> None:
    """Check that PNG, which has no axis of one channel, keeps the shape of an image.

    Raises:
        ConfigError: the last axis of the image would be lost.
    """
    shape = np.shape(image)
    if len(shape) == 3 and shape[2] == 1:
        raise ConfigError(
            f"an image has the shape {shape}, but PNG would lose its last axis; "
            "remove it with .map()"
        )
