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

#: How many folders in each folder are listed to find out whether a folder holds images.
_MAX_FOLDERS_IN_ONE: Final = 3

#: How many names are listed at most, in all folders: each may take a request to a store.
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


def suffix_of(path: str) -> str:
    """Return the suffix of a name in lower case, without the dot; "" of a name without suffix."""
    return os.path.splitext(path)[1].lower().removeprefix(".")


def visible_files(paths: Iterable[str]) -> list[str]:
    """Return the paths of files that are not hidden, and the mark of an unfinished folder."""
    return [path for path in paths if not is_hidden(path) or path == UNFINISHED_MARK]


def images_among(paths: Iterable[str]) -> ImageFiles:
    """Tell images from other files."""
    # Looked up once: a folder may hold a million files.
    suffixes = types_by_extension("image")
    images = []
    others = []
    for path in paths:
        if suffix_of(path) in suffixes:
            images.append(path)
        else:
            others.append(path)
    return ImageFiles(images, others)


def holds_images(names: Sequence[str]) -> bool:
    """Return whether one of the files is an image, or the metadata of images."""
    if not set(METADATA_OF_IMAGES).isdisjoint(names):
        return True
    return bool(images_among(names).images)


def holds_images_below(folder: Folder, names: Sequence[str]) -> bool:
    """Return whether there are images in a folder, or in some of the first folders below it.

    The search is breadth-first. It lists :data:`_MAX_FOLDERS_IN_ONE` folders in each folder, and at
    most :data:`_MAX_FOLDERS_TRIED` in all.

    Args:
        folder: the folder.
        names: the names of the files and folders in it.
    """
    listed_folders: deque[tuple[Folder, Sequence[str]]] = deque([(folder, names)])
    n_tried = 0
    while listed_folders:
        current_folder, names_in_folder = listed_folders.popleft()
        if holds_images(names_in_folder):
            return True
        n_folders = 0
        for name in names_in_folder:
            if n_folders == _MAX_FOLDERS_IN_ONE or n_tried == _MAX_FOLDERS_TRIED:
                break
            if name.startswith("."):
                continue
            n_tried += 1
            subfolder = current_folder.subfolder(name)
            names_in_subfolder = subfolder.list_names()
            # A file has no names in it.
            if names_in_subfolder:
                n_folders += 1
                listed_folders.append((subfolder, names_in_subfolder))
    return False
