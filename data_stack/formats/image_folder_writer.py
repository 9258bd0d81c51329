"""Writes folders of images, one folder a class, with what else is known of the images beside them."""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np

from data_stack.codecs.registry import codec_of
from data_stack.exception import ConfigError
from data_stack.formats.image_folder import FILE_NAME, METADATA, PART, image_type_of_bytes
from data_stack.io.folder import folder_of
from data_stack.io.storage_errors import storage_errors

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["ImageFolderWriter"]

_CLASS: Final = re.compile(r"[^/\\\x00-\x1f\x7f.][^/\\\x00-\x1f\x7f]{0,199}")


class ImageFolderWriter:
    """Writes images into one folder a class, and ``metadata.jsonl`` with all else that is known of them.

    ::

        with ImageFolderWriter("pets") as writer:
            writer.append({"image": pixels, "class": "cat", "age": 3})  # pets/cat/000000.png

    ``metadata.jsonl`` is written last; until then a folder of this machine counts as unfinished and is not read.

    Args:
        target: a path, a StorageConnector, a URL, or a Folder.
        prefix: folder below it.

    Raises:
        ConfigError: the folder on this machine is not empty.
    """

    def __init__(self, target: Any, *, prefix: str = "") -> None:
        self._folder = folder_of(target, prefix)
        self._length = 0
        self._is_closed = False
        self._rows: IO[bytes] = io.BytesIO()
        if self._folder.path is not None:
            names = self._folder.list_names()
            if names:
                raise ConfigError(f"{self._folder.name!r} holds {names[0]!r} already; choose another folder")
            with self._errors():
                self._folder.path.mkdir(parents=True, exist_ok=True)
                self._rows = open(self._folder.path / PART, "x+b")

    def __len__(self) -> int:
        """Number of samples."""
        return self._length

    def append(self, sample: Mapping[str, Any]) -> int:
        """Write a sample; its position.

        Args:
            sample: ``image``, an array of pixels (stored as PNG, which loses nothing) or the bytes of a JPEG, PNG or WebP file
                (stored as they are); ``class``, the name of its folder, or ``label``, an int that becomes one; and whatever JSON
                can hold.

        Raises:
            ConfigError: there is no image or it is none, its class cannot be the name of a folder, or another value is nothing
                for JSON. Nothing of the sample was written.
        """
        if self._is_closed:
            raise ConfigError(f"images of {self._folder.name!r} were closed; open another writer")
        position = self._length
        data, ending = self._encode(sample, position)
        folder = _class_folder(sample, position)
        path = f"{folder}/{position:06d}.{ending}" if folder else f"{position:06d}.{ending}"
        try:
            row = codec_of("json").encode({FILE_NAME: path, **{name: value for name, value in sample.items() if name != "image"}})
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"the metadata of images are JSON, which cannot hold sample {position}: {error!s:.200}; leave columns of arrays "
                f"and bytes out, or choose another format"
            ) from error
        if self._folder.path is None:
            with self._folder.create(path) as file:
                file.write(data)
        else:
            # Not durable one by one, which would take a thousand times as long: all of them are, when metadata.jsonl is there.
            with self._errors():
                (self._folder.path / folder).mkdir(parents=True, exist_ok=True)
                (self._folder.path / path).write_bytes(data)
        with self._errors():
            self._rows.write(row + b"\n")
            self._rows.flush()
        self._length += 1
        return position

    def close(self) -> None:
        """Finish: write ``metadata.jsonl``."""
        if self._is_closed:
            return
        if self._folder.path is not None:
            os.sync()
        with self._errors():
            self._rows.seek(0)
        with self._folder.create(METADATA[0]) as file:
            while chunk := self._rows.read(1 << 20):
                file.write(chunk)
        self.abandon()
        if self._folder.path is not None:
            (self._folder.path / PART).unlink(missing_ok=True)

    def abandon(self) -> None:
        """Close, and leave the folder unfinished."""
        self._is_closed = True
        with contextlib.suppress(OSError):
            self._rows.close()  # may fail again to write what a full disk refused

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if exc_type is None:
            self.close()
        else:
            self.abandon()

    # ------------------------------------------------------------------ inside

    def _errors(self) -> AbstractContextManager[None]:
        return storage_errors("write images to", self._folder.name)

    def _encode(self, sample: Mapping[str, Any], position: int) -> tuple[bytes, str]:
        value = sample.get("image")
        if isinstance(value, (bytes, bytearray, memoryview)):
            kind = image_type_of_bytes(bytes(value[:16]))
            if kind is None:
                raise ConfigError(f"the image of sample {position} is {bytes(value[:8])!r}…, no JPEG, PNG or WebP file")
            return bytes(value), kind
        try:
            return codec_of("png").encode(value), "png"
        except (TypeError, ValueError) as error:
            raise ConfigError(f"the image of sample {position} cannot be stored as PNG: {error}") from error


def _class_folder(sample: Mapping[str, Any], position: int) -> str:
    """The folder of a sample's class; none where it has neither class nor label."""
    if "class" in sample:
        name = sample["class"]
    else:
        label = sample.get("label")
        if not isinstance(label, (int, np.integer)):
            return ""
        name = f"{label:04d}" if label >= 0 else f"minus-{-label:04d}"  # no identifier of a store begins with "-"
    if not isinstance(name, str) or not _CLASS.fullmatch(name) or name != name.strip():
        raise ConfigError(f"the class of sample {position}, {name!r:.80}, cannot be the name of a folder")
    return name
