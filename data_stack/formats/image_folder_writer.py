"""Writes folders of images with a folder for each class."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from data_stack.codecs.codec import Column
from data_stack.codecs.registry import codec_of, type_of_bytes, types_by_extension
from data_stack.exception import ConfigError
from data_stack.formats.conversion import format as conversion
from data_stack.formats.conversion.format import Batches, ConvertibleFormat, Source, register_format
from data_stack.formats.image_folder import FILE_NAME, METADATA, PART, ImageFolderIterator, holds_images
from data_stack.io.folder import Folder, folder_of
from data_stack.io.location import Location
from data_stack.io.storage_errors import storage_errors

_CLASS: Final = re.compile(r"[^/\\\x00-\x1f\x7f.][^/\\\x00-\x1f\x7f]{0,199}")


def write_image_folder(target: Any, samples: Iterable[Mapping[str, Any]], *, prefix: str = "") -> int:
    """Write images into a folder for each class, and ``metadata.jsonl`` with all other columns; return their number.

    ::

        write_image_folder("pets", [{"image": pixels, "class": "cat", "age": 3}])  # pets/cat/000000.png

    ``metadata.jsonl`` is written last; until then a local folder counts as unfinished, and readers refuse it.

    Args:
        target: a path, a StorageConnector, a URL, or a Folder.
        samples: dicts with ``image``, an array of pixels (stored as lossless PNG) or the bytes of an image file (stored
            unchanged); ``class``, the name of its folder, or ``label``, an int that becomes the name; and other JSON values.
        prefix: folder below ``target``.

    Raises:
        ConfigError: a local folder is not empty; or a sample has no image, a class that is not a valid name of a folder, or a
            value that JSON cannot hold.
    """
    folder = folder_of(target, prefix)
    root, errors = folder.path, functools.partial(storage_errors, "write images to", folder.name)
    if root is not None:
        names = folder.list_names()
        if names:
            raise ConfigError(f"{folder.name!r} is not empty, it contains {names[0]!r}; choose another folder")
        with errors():
            root.mkdir(parents=True, exist_ok=True)
            (root / PART).touch()
    rows = []
    for position, sample in enumerate(samples):
        data, ending = _encode(sample, position)
        class_folder = _class_folder(sample, position)
        path = f"{class_folder}/{position:06d}.{ending}" if class_folder else f"{position:06d}.{ending}"
        try:
            row = {FILE_NAME: path, **{name: value for name, value in sample.items() if name != "image"}}
            rows.append(codec_of("json").encode(row) + b"\n")
        except (TypeError, ValueError) as error:
            raise ConfigError(f"JSON cannot hold the metadata of sample {position}: {error!s:.200}") from error
        if root is None:
            with folder.create(path) as file:
                file.write(data)
        else:
            with errors():  # not synced one by one, which would be a thousand times slower
                (root / class_folder).mkdir(parents=True, exist_ok=True)
                (root / path).write_bytes(data)
    if root is not None:
        os.sync()
    with folder.create(METADATA[0]) as file:
        file.write(b"".join(rows))
    if root is not None:
        (root / PART).unlink()
    return len(rows)


def _encode(sample: Mapping[str, Any], position: int) -> tuple[bytes, str]:
    """The file of an image, and its extension."""
    value = sample.get("image")
    if isinstance(value, (bytes, bytearray, memoryview)):
        kind = type_of_bytes(bytes(value[:16]))
        if kind is None or kind not in types_by_extension("image").values():
            raise ConfigError(f"the image of sample {position} is {bytes(value[:8])!r}…, which is not a known image format")
        return bytes(value), kind
    try:
        return codec_of("png").encode(value), "png"
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the image of sample {position} cannot be stored as PNG: {error}") from error


def _class_folder(sample: Mapping[str, Any], position: int) -> str:
    """The folder of a sample's class; empty if it has neither class nor label."""
    if "class" in sample:
        name = sample["class"]
    else:
        label = sample.get("label")
        if not isinstance(label, (int, np.integer)):
            return ""
        name = f"{label:04d}" if label >= 0 else f"minus-{-label:04d}"  # identifiers of stores must not begin with "-"
    if not isinstance(name, str) or not _CLASS.fullmatch(name) or name != name.strip():
        raise ConfigError(f"the class of sample {position}, {name!r:.80}, is not a valid name of a folder")
    return name


@register_format
class ImagesFormat(ConvertibleFormat):
    """A folder of images; their metadata file is written last."""

    name = "images"
    options = frozenset({"on_error"})
    is_fallback = True

    def recognizes(self, folder: Folder, names: Sequence[str]) -> bool:
        folders = [name for name in names if "." not in name][:3]
        return holds_images(names) or any(holds_images(folder.subfolder(name).list_names()) for name in folders)

    def open(self, location: Location) -> Source:
        values = ImageFolderIterator(location.as_folder())
        types = values.image_types
        # Images of several types become PNG, which is lossless.
        schema = {"image": Column(types.pop() if len(types) == 1 else "png")}
        stored = ImageFolderIterator(location.as_folder(), decode=False) if not types else None
        for name in values.fields[1:]:
            schema[name] = conversion.infer_column(values.read_column(name).tolist(), name)
        return Source(location.full_name, values, schema, {name: name for name in schema}, stored)

    def check(self, source: Source, location: Location, shardlen: int | None) -> None:
        super().check(source, location, shardlen)
        column = source.schema.get("image")
        if column is None:
            raise ConfigError(f"there is no column 'image' in {', '.join(source.schema)}; rename one: --columns image=…")
        if conversion.plain_type(column.type) not in {*types_by_extension("image").values(), "array", "npy"}:
            raise ConfigError(f"column 'image' is of type {column.type!r}, which is not an image type")
        for name, other in source.schema.items():
            if name != "image" and conversion.plain_type(other.type) not in ("utf8", "i64", "u64", "int", "json", "array"):
                raise ConfigError(f"column {name!r} is of type {other.type!r}, which JSON cannot hold; leave it out: --columns …")

    def write(self, source: Source, place: Location, name: str, shardlen: int | None, batches: Batches) -> None:
        samples = conversion.samples_of_batches(batches, {column: column for column in source.schema})
        write_image_folder(place.as_folder(), _check_images(samples))


def _check_images(samples: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for sample in samples:
        shape = np.shape(sample["image"])
        if len(shape) == 3 and shape[2] == 1:
            raise ConfigError(f"an image has the shape {shape}, but PNG would lose its last axis; remove it with .map()")
        yield sample
