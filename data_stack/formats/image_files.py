"""Tells which files of a folder are images, by their suffixes."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from data_stack.codecs.registry import types_by_extension
from data_stack.io.account import is_hidden
from data_stack.io.folder import Folder

#: The files that list the images of a folder, with further columns; the first one is preferred.
METADATA_OF_IMAGES: Final = ("metadata.jsonl", "metadata.csv")

#: The name of the file that marks a local folder as unfinished.
UNFINISHED_MARK: Final = ".metadata.jsonl.part"

#: So many folders in one folder are looked into to tell whether it holds images.
_MAX_FOLDERS_IN_ONE: Final = 3

#: The limit of all folders that are looked into: each may be a request to a store.
_MAX_FOLDERS_TRIED: Final = 64


@dataclass(frozen=True, slots=True)
class ImageFiles:
    """The files of a folder, images apart from others.

    Attributes:
        images: the paths of the images.
        others: the paths of the other files.
    """

    images: list[str]
    others: list[str]


def type_of_image(path: str) -> str | None:
    """Return the name of the codec of an image by the suffix of its name; None for other files."""
    suffix = os.path.splitext(path)[1]
    return types_by_extension("image").get(suffix.lower().removeprefix("."))


def visible_files(paths: Iterable[str]) -> list[str]:
    """Return the paths of files that are not hidden, and the mark of an unfinished folder."""
    return [path for path in paths if not is_hidden(path) or path == UNFINISHED_MARK]


def images_among(paths: Iterable[str]) -> ImageFiles:
    """Tell images from other files."""
    # Looked up once: a folder may hold a million files.
    suffixes = {f".{extension}" for extension in types_by_extension("image")}
    found = ImageFiles([], [])
    for path in paths:
        is_image = os.path.splitext(path)[1].lower() in suffixes
        if is_image:
            found.images.append(path)
        else:
            found.others.append(path)
    return found


def holds_images(names: Sequence[str]) -> bool:
    """Return whether one of the files is an image, or the metadata of images."""
    if not set(METADATA_OF_IMAGES).isdisjoint(names):
        return True
    return bool(images_among(names).images)


def holds_images_below(folder: Folder, names: Sequence[str]) -> bool:
    """Return whether a folder has images, or some of the first folders in it, at any depth.

    A folder is looked into before the folders in it are, and at most :data:`_MAX_FOLDERS_TRIED`
    are looked into.

    Args:
        folder: the folder.
        names: the names of the files and folders in it.
    """
    waiting: deque[tuple[Folder, Sequence[str]]] = deque([(folder, names)])
    n_tried = 0
    while waiting:
        above, names_above = waiting.popleft()
        if holds_images(names_above):
            return True
        n_folders = 0
        for name in names_above:
            if n_folders == _MAX_FOLDERS_IN_ONE or n_tried == _MAX_FOLDERS_TRIED:
                break
            if name.startswith("."):
                continue
            n_tried += 1
            below = above.subfolder(name)
            names_below = below.list_names()
            # A file has no names in it.
            if names_below:
                n_folders += 1
                waiting.append((below, names_below))
    return False
