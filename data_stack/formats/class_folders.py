"""Numbers the classes of images by the names of their folders, over all splits of a place.

The rule is a pure function of the paths (``docs/reference/splits_and_classes.md``, Classes):

- The class folder of an image is the highest folder above it that holds images itself: ``cat``
  of ``cat/1.png`` and of ``cat/more/2.png``, if ``cat/1.png`` exists.
- The class is the path of that folder, ``round/circle``, without folders that are the only one in
  theirs: ``n01443537`` of ``n01443537/images/1.png``, if ``n01443537`` has no other folder.
- A folder that is such an only one in the other splits names no class: images of ``val/images``
  have none if those of training lie in ``train/n01443537/images``.
- All splits are looked at together, so a class has one number in all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class ClassFolders:
    """The classes of the images below one folder, or below the folders of several splits.

    Attributes:
        class_names: the classes in the order of their numbers, which is alphabetical.
        class_of_folder: the class of each class folder, by its path; ``""`` for a folder that names
            no class.
    """

    class_names: tuple[str, ...]
    class_of_folder: Mapping[str, str]

    def class_of(self, path: str) -> str | None:
        """Return the class of an image.

        Returns:
            ``""`` if its folders name no class; None if its folder is unknown.
        """
        folder = path.rpartition("/")[0]
        for above in _folders_from_top(folder):
            if above in self.class_of_folder:
                return self.class_of_folder[above]
        return None if folder else ""


def find_class_folders(
    images: Mapping[str, Sequence[str]], others: Iterable[str] = ()
) -> ClassFolders:
    """Find the classes of the images of all splits.

    Args:
        images: the paths of the images in each split, relative to the folder of the split.
        others: the paths of files that are no images; a folder that holds only such files is a
            class without images.
    """
    folders_of_splits: dict[str, set[str]] = {}
    with_images: set[str] = set()
    for split, paths in images.items():
        folders = {path.rpartition("/")[0] for path in paths}
        folders.discard("")
        folders_of_splits[split] = folders
        with_images |= folders

    class_folders = {_highest(folder, with_images) for folder in with_images}
    children = _children_of(class_folders)
    names = {folder: _name_of(folder, children) for folder in class_folders}
    for folder in _folders_without_class(names, folders_of_splits):
        names[folder] = ""

    classes = set(names.values())
    classes.discard("")
    top_folders = {_first_part(folder) for folder in class_folders}
    are_classes_top_folders = len(classes) > 0 and classes <= top_folders
    if are_classes_top_folders:
        # A class all of whose images are missing keeps its number: its folder holds other files.
        classes |= {_first_part(path) for path in others if "/" in path}
    return ClassFolders(tuple(sorted(classes)), names)


def _folders_from_top(folder: str) -> Iterable[str]:
    """Iterate over a folder and those above it: ``a``, ``a/b`` and ``a/b/c`` of ``a/b/c``."""
    parts = folder.split("/") if folder else []
    for count in range(1, len(parts) + 1):
        yield "/".join(parts[:count])


def _highest(folder: str, with_images: set[str]) -> str:
    """Return the highest of the folders above a folder, itself included, that holds images."""
    for above in _folders_from_top(folder):
        if above in with_images:
            return above
    return folder


def _children_of(class_folders: Iterable[str]) -> dict[str, set[str]]:
    """Return the folders in each folder above the class folders."""
    children: dict[str, set[str]] = {}
    for class_folder in class_folders:
        above = ""
        for folder in _folders_from_top(class_folder):
            children.setdefault(above, set()).add(folder)
            above = folder
    return children


def _name_of(class_folder: str, children: Mapping[str, set[str]]) -> str:
    """Return the parts of a class folder's path that tell it from others.

    If none does, it is the first part.
    """
    telling_parts = []
    above = ""
    for folder in _folders_from_top(class_folder):
        if len(children[above]) > 1:
            telling_parts.append(_last_part(folder))
        above = folder
    if not telling_parts:
        return _first_part(class_folder)
    return "/".join(telling_parts)


def _folders_without_class(
    names: Mapping[str, str], folders_of_splits: Mapping[str, set[str]]
) -> set[str]:
    """Return the folders of a split that name no class, although those of other splits do.

    The images of the split lie in one folder, such as ``images``, and each class of another split
    has a folder of this name as its only folder.

    Args:
        names: the classes so far, by class folder.
        folders_of_splits: the folders of each split that hold images.
    """
    if len(folders_of_splits) < 2:
        return set()
    only_folders = set()
    for folder, name in names.items():
        # The class of ``n01443537/images`` is ``n01443537``: ``images`` is not part of its name.
        is_part_of_name = _last_part(name) == _last_part(folder)
        if "/" in folder and not is_part_of_name:
            only_folders.add(_last_part(folder))

    without_class = set()
    for folders in folders_of_splits.values():
        top_folders = {_first_part(folder) for folder in folders}
        if len(top_folders) == 1 and top_folders <= only_folders:
            without_class |= {folder for folder in names if _first_part(folder) in top_folders}
    return without_class


def _first_part(path: str) -> str:
    return path.partition("/")[0]


def _last_part(path: str) -> str:
    return path.rpartition("/")[2]
