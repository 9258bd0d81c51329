"""The index of the images of a folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from data_stack.exception import ConfigError
from data_stack.formats.class_folders import ClassFolders
from data_stack.io.folder import Folder
from data_stack.io.versions import SeenVersions

#: How many classes a message names.
_MAX_CLASSES_SHOWN: Final = 20


@dataclass(frozen=True)
class ImageIndex:
    """The images of a folder.

    Attributes:
        paths: the paths of the images relative to the folder, in the order of the samples.
        columns: the values of each field, except the images.
        class_names: the classes by label; empty with metadata.
        seen: the versions of the images as they were first read.
    """

    paths: list[str]
    columns: Mapping[str, list[Any]]
    class_names: tuple[str, ...]
    seen: SeenVersions = field(init=False)

    def __post_init__(self) -> None:
        # the way of a frozen dataclass to set its attributes
        object.__setattr__(self, "seen", SeenVersions(len(self.paths)))

    def select(self, numbers: Sequence[int]) -> ImageIndex:
        """Return the index of some of the images, by their numbers."""
        columns = {}
        for name, values in self.columns.items():
            columns[name] = [values[number] for number in numbers]
        paths = [self.paths[number] for number in numbers]
        return ImageIndex(paths, columns, self.class_names)


def index_by_classes(
    folder: Folder,
    images: Sequence[str],
    class_folders: ClassFolders,
    class_names: tuple[str, ...] | None = None,
) -> ImageIndex:
    """Return the index of images whose folders name their classes, in the order of the classes.

    Without classes, samples have nothing but the image and its path.

    Args:
        folder: the folder of the images, for messages.
        images: the paths of the images relative to the folder.
        class_folders: the classes by folder.
        class_names: the classes in the order of their labels; None for all classes in the order of
            their names.

    Raises:
        ConfigError: there are images both in the folder itself and in folders in it, or the class
            of an image is not among ``class_names``.
    """
    images_in_root = [path for path in images if "/" not in path]
    if images_in_root and len(images_in_root) < len(images):
        raise ConfigError(
            f"{folder.name} contains images, such as {images_in_root[0]!r}, and folders of images"
        )

    class_of_image = {path: class_folders.class_of(path) or "" for path in images}
    has_classes = any(class_of_image.values())
    if images and not has_classes:
        sorted_images = sorted(images)
        return ImageIndex(sorted_images, {"path": sorted_images}, ())

    if class_names is None:
        class_names = class_folders.class_names
    label_of_class = {name: label for label, name in enumerate(class_names)}
    for path, name in class_of_image.items():
        if name not in label_of_class:
            raise ConfigError(
                f"{folder.full_name(path)} is in the folder of class {name!r:.80}, which "
                f"is not among the classes {', '.join(class_names[:_MAX_CLASSES_SHOWN])}; "
                f"open the place again, or name it in class_names="
            )

    def class_folder_and_name(path: str) -> tuple[str, str, str]:
        folder_of_image, _, file_name = path.rpartition("/")
        return class_of_image[path], folder_of_image, file_name

    sorted_images = sorted(images, key=class_folder_and_name)
    classes = [class_of_image[path] for path in sorted_images]
    columns: dict[str, list[Any]] = {
        "label": [label_of_class[name] for name in classes],
        "class": classes,
        "path": sorted_images,
    }
    return ImageIndex(sorted_images, columns, class_names)
