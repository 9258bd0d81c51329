"""Writes folders of images with a folder for each class."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

import numpy as np

from data_stack.codecs.registry import codec_of, type_of_bytes, types_by_extension
from data_stack.exception import ConfigError
from data_stack.formats.dataset_writer import DatasetWriter
from data_stack.formats.image_files import METADATA_OF_IMAGES, UNFINISHED_MARK
from data_stack.formats.image_metadata import FILE_NAME_COLUMN
from data_stack.io.folder import Folder, folder_of
from data_stack.io.storage_errors import storage_errors

#: The valid names of classes, which become names of folders: 1 to 200 characters, no slashes, no
#: control characters, no dot at the start.
_CLASS_NAME: Final = re.compile(r"[^/\\\x00-\x1f\x7f.][^/\\\x00-\x1f\x7f]{0,199}")

#: How many bytes at the start of a file tell its type.
_N_START_BYTES: Final = 16


def write_image_folder(
    target: Any, samples: Iterable[Mapping[str, Any]], *, prefix: str = ""
) -> int:
    """Write images into a folder for each class, and ``metadata.jsonl`` with all other columns.

    ::

        write_image_folder("pets", [{"image": pixels, "class": "cat", "age": 3}])

    The image becomes ``pets/cat/000000.png``. ``metadata.jsonl`` is written last. Until then a
    local folder counts as unfinished, and readers refuse it.

    Args:
        target: a path, a StorageConnector, a URL, or a Folder.
        samples: dicts with ``image``, an array of pixels (stored as lossless PNG) or the bytes of
            an image file (stored unchanged); ``class``, the name of its folder, or ``label``, an
            int that becomes the name; and other JSON values.
        prefix: folder below ``target``.

    Returns:
        The number of images.

    Raises:
        ConfigError: a local folder is not empty; or a sample has no image, a class that is not a
            valid name of a folder, or a value that JSON cannot hold.
    """
    with ImageFolderWriter(target, prefix=prefix) as writer:
        for sample in samples:
            writer.append(sample)
    return len(writer)


class ImageFolderWriter(DatasetWriter):
    """Writes images into a folder for each class, and a ``metadata.jsonl`` at last.

    Images appear one by one. A folder that was abandoned remains unfinished: in a local folder, a
    file marks it; in a store, the metadata are missing.

    Args:
        target: a path, a StorageConnector, a URL, or a Folder.
        prefix: folder below ``target``.

    Raises:
        ConfigError: a local folder is not empty.
    """

    #: The folder of the images.
    _folder: Folder

    #: The lines of ``metadata.jsonl``, one for each image.
    _metadata_lines: list[bytes]

    #: The local folder; None in a store.
    _root: Path | None

    #: Whether the writer was closed or abandoned.
    _is_closed: bool

    def __init__(self, target: Any, *, prefix: str = "") -> None:
        self._folder = folder_of(target, prefix)
        self._root = self._folder.path
        self._metadata_lines = []
        self._is_closed = False
        if self._root is not None:
            self._start_local_folder(self._root)

    def _start_local_folder(self, root: Path) -> None:
        """Mark a local folder as unfinished."""
        names = self._folder.list_names()
        if names:
            raise ConfigError(
                f"{self._folder.name!r} is not empty, it contains {names[0]!r}; "
                "choose another folder"
            )
        with self._storage_errors():
            root.mkdir(parents=True, exist_ok=True)
            (root / UNFINISHED_MARK).touch()

    def _storage_errors(self) -> AbstractContextManager[None]:
        """Return a context that raises the errors of the disk as StorageError."""
        return storage_errors("write images to", self._folder.name)

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self._metadata_lines)

    def append(self, sample: Mapping[str, Any]) -> None:
        """Write an image.

        Args:
            sample: as for :func:`write_image_folder`.

        Raises:
            ConfigError: the sample cannot be stored; the message says why.
        """
        position = len(self._metadata_lines)
        data, extension = _encode_image(sample, position)
        class_folder = _class_folder(sample, position)
        path = f"{position:06d}.{extension}"
        if class_folder:
            path = f"{class_folder}/{path}"

        metadata = {name: value for name, value in sample.items() if name != "image"}
        try:
            line = codec_of("json").encode({FILE_NAME_COLUMN: path, **metadata}) + b"\n"
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"JSON cannot hold the metadata of sample {position}: {error!s:.200}"
            ) from error
        self._metadata_lines.append(line)

        if self._root is None:
            with self._folder.create(path) as file:
                file.write(data)
            return
        # Files are not synced one by one, which would take a thousand times as long.
        with self._storage_errors():
            (self._root / class_folder).mkdir(parents=True, exist_ok=True)
            (self._root / path).write_bytes(data)

    def close(self) -> None:
        """Write the metadata, which complete the folder."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._root is not None:
            os.sync()
        with self._folder.create(METADATA_OF_IMAGES[0]) as file:
            file.write(b"".join(self._metadata_lines))
        if self._root is not None:
            (self._root / UNFINISHED_MARK).unlink()

    def abandon(self) -> None:
        """Leave the folder unfinished."""
        self._is_closed = True


def _encode_image(sample: Mapping[str, Any], position: int) -> tuple[bytes, str]:
    """Return the file of a sample's image, and the extension of the file."""
    image = sample.get("image")
    if isinstance(image, (bytes, bytearray, memoryview)):
        data = bytes(image)
        type_name = type_of_bytes(data[:_N_START_BYTES])
        if type_name is None or type_name not in types_by_extension("image").values():
            raise ConfigError(
                f"the image of sample {position} is {data[:8]!r}…, "
                "which is not a known image format"
            )
        return data, type_name
    try:
        return codec_of("png").encode(image), "png"
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"the image of sample {position} cannot be stored as PNG: {error}"
        ) from error


def _class_folder(sample: Mapping[str, Any], position: int) -> str:
    """Return the folder of a sample's class; empty if the sample has neither class nor label."""
    if "class" in sample:
        name = sample["class"]
    elif isinstance(sample.get("label"), (int, np.integer)):
        name = _folder_of_label(sample["label"])
    else:
        return ""
    is_name = isinstance(name, str) and _CLASS_NAME.fullmatch(name) is not None
    if not is_name or name != name.strip():
        raise ConfigError(
            f"the class of sample {position}, {name!r:.80}, is not a valid name of a folder"
        )
    return str(name)


def _folder_of_label(label: int) -> str:
    """Return the name of the folder of a label: ``"0007"``, ``"minus-0001"``."""
    # Identifiers of stores must not begin with "-".
    if label < 0:
        return f"minus-{-label:04d}"
    return f"{label:04d}"
