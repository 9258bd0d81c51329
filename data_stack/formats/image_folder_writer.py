"""Writes folders of images with a folder for each class, and their metadata."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np

from data_stack.codecs.codec import codec_of
from data_stack.exception import ConfigError
from data_stack.formats.image_folder import FILE_NAME, METADATA, PART, image_type_of_bytes
from data_stack.io.folder import folder_of
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
        kind = image_type_of_bytes(bytes(value[:16]))
        if kind is None:
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
