"""Folders of images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from data_stack.codecs.codec import Column, types_by_extension
from data_stack.exception import ConfigError
from data_stack.formats.conversion.format import Batches, ConvertibleFormat, Destination, register_format
from data_stack.formats.conversion.source import Source, infer_column, plain_type, samples_of_batches
from data_stack.formats.image_folder import ImageFolderIterator, holds_images
from data_stack.formats.image_folder_writer import write_image_folder
from data_stack.io.folder import Folder
from data_stack.io.location import Location

_MAX_FOLDERS_CHECKED = 3


@register_format
class ImagesFormat(ConvertibleFormat):
    """A folder of images; their metadata file is written last."""

    name = "images"
    options = frozenset({"on_error"})
    is_fallback = True

    def recognizes(self, folder: Folder, names: Sequence[str]) -> bool:
        folders = [name for name in names if "." not in name][:_MAX_FOLDERS_CHECKED]
        return holds_images(names) or any(holds_images(folder.subfolder(name).list_names()) for name in folders)

    def open(self, location: Location) -> Source:
        values = ImageFolderIterator(location.as_folder())
        types = values.image_types
        # Images of several types become PNG, which is lossless.
        schema = {"image": Column(types.pop() if len(types) == 1 else "png")}
        stored = ImageFolderIterator(location.as_folder(), decode=False) if not types else None
        for name in values.fields[1:]:
            schema[name] = infer_column(values.read_column(name).tolist(), name)
        return Source(location.full_name, values, schema, {name: name for name in schema}, stored)

    def check(self, source: Source, destination: Destination) -> None:
        super().check(source, destination)
        column = source.schema.get("image")
        if column is None:
            raise ConfigError(f"there is no column 'image' in {', '.join(source.schema)}; rename one: --columns image=…")
        if plain_type(column.type) not in {*types_by_extension("image").values(), "array", "npy"}:
            raise ConfigError(f"column 'image' is of type {column.type!r}, which is not an image type")
        for name, other in source.schema.items():
            if name != "image" and plain_type(other.type) not in ("utf8", "i64", "u64", "int", "json", "array"):
                raise ConfigError(f"column {name!r} is of type {other.type!r}, which JSON cannot hold; leave it out: --columns …")

    def write(self, source: Source, destination: Destination, batches: Batches) -> None:
        names = {name: name for name in source.schema}
        write_image_folder(destination.place.as_folder(), _check_images(samples_of_batches(batches, names)))


def _check_images(samples: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for sample in samples:
        shape = np.shape(sample["image"])
        if len(shape) == 3 and shape[2] == 1:
            raise ConfigError(f"an image has the shape {shape}, but PNG would lose its last axis; remove it with .map()")
        yield sample
