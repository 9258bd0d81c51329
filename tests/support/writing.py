"""What tests write: samples with a writer of any format, the file of an image, a stored
resource.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from PIL import Image

from data_stack.io.storage_connectors import InMemoryStorageConnector


def append_all(writer: Any, samples: Iterable[Any]) -> None:
    """Append all of them, and close the writer."""
    with writer:
        for sample in samples:
            writer.append(sample)


def files_of(folder: Path, *but: str) -> dict[str, bytes]:
    """All files of a folder by their paths, but those of some names."""
    found = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in but]
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def bytes_of(write: Callable[..., Any], *arguments: Any, **options: Any) -> bytes:
    """What a function writes to the file that it is given first."""
    write(file := io.BytesIO(), *arguments, **options)
    return file.getvalue()


def image_bytes(image: Any, kind: str = "PNG", **options: Any) -> bytes:
    """A file with an image of Pillow, or with pixels."""
    return bytes_of(
        (image if isinstance(image, Image.Image) else Image.fromarray(image)).save, kind, **options
    )


def resource_of(data: bytes, name: str = "resource") -> Any:
    """Bytes as they are opened from a store."""
    store = InMemoryStorageConnector()
    store.set_resource(name, [data])
    return store.get_resource(name)
