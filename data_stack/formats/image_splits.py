"""Opens the images of all splits of a place, so that classes and types agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal

from data_stack.formats.class_folders import find_class_folders
from data_stack.formats.image_files import METADATA_OF_IMAGES, images_among, visible_files
from data_stack.formats.image_folder import ImageFolderIterator, SplitAgreement
from data_stack.io.folder import Folder
from data_stack.util.program_lines import warn_program

#: The metadata file whose columns have inferred types.
_METADATA_TABLE: Final = "metadata.csv"

#: float64 holds all integers up to here.
_MAX_EXACT_INTEGER: Final = 1 << 53


def open_splits_of_images(
    place: Folder,
    splits: Mapping[str, Sequence[str]],
    *,
    on_error: Literal["raise", "skip"] = "raise",
    class_names: Sequence[str] | None = None,
) -> dict[str, list[ImageFolderIterator]]:
    """Open the images of each split. A class has one number in all splits.

    A ``metadata.csv`` or ``metadata.jsonl`` beside the folders is that of all splits.

    Args:
        place: the folder that holds the folders.
        splits: the names of the folders of each split.
        on_error: as for :class:`~data_stack.formats.ImageFolderIterator`.
        class_names: as for :class:`~data_stack.formats.ImageFolderIterator`.

    Returns:
        An iterator for each folder of a split; of metadata beside the folders, one for each split.

    Raises:
        ConfigError: as for :class:`~data_stack.formats.ImageFolderIterator`.

    Warns:
        UserWarning: there are classes, and a split has none.
    """
    if any(place.has_file(name) for name in METADATA_OF_IMAGES):
        opened = {}
        for split, names in splits.items():
            iterator = ImageFolderIterator(place, on_error=on_error, class_names=class_names)
            folders = tuple(f"{name}/" for name in names)
            iterator._agreement = SplitAgreement(folders=folders)
            opened[split] = [iterator]
        return opened

    opened = {}
    for split, names in splits.items():
        opened[split] = [
            ImageFolderIterator(place.subfolder(name), on_error=on_error, class_names=class_names)
            for name in names
        ]
    _make_agree(place, splits, opened)
    return opened


def _make_agree(
    place: Folder,
    splits: Mapping[str, Sequence[str]],
    opened: Mapping[str, Sequence[ImageFolderIterator]],
) -> None:
    """Make the iterators of all splits agree on the numbers of classes and the types of columns.

    Args:
        place: the folder that holds the folders.
        splits: the names of the folders of each split.
        opened: the iterator of each folder.

    Warns:
        UserWarning: there are classes, and a split has none.
    """
    # Collect the images whose folders name classes, and the iterators with a metadata.csv.
    images: dict[str, list[str]] = {}
    others: list[str] = []
    with_table: list[ImageFolderIterator] = []
    for split, names in splits.items():
        images[split] = []
        for name, iterator in zip(names, opened[split], strict=True):
            visible = visible_files(place.subfolder(name).list_files())
            if _METADATA_TABLE in visible:
                with_table.append(iterator)
            # A folder with metadata has no classes.
            if set(METADATA_OF_IMAGES).isdisjoint(visible):
                files = images_among(visible)
                images[split].extend(files.images)
                others.extend(files.others)

    # What all splits have in common.
    kinds_of_columns = _common_kinds(with_table)
    class_folders = find_class_folders(images, others)
    for iterators in opened.values():
        for iterator in iterators:
            iterator._agreement = replace(iterator._agreement, class_folders=class_folders)
    for iterator in with_table:
        iterator._agreement = replace(iterator._agreement, kinds_of_columns=kinds_of_columns)

    splits_without_class = []
    for split, paths in images.items():
        has_class = any(class_folders.class_of(path) for path in paths)
        if paths and not has_class:
            splits_without_class.append(split)
    if class_folders.class_names and splits_without_class:
        shown_splits = ", ".join(splits_without_class)
        warn_program(
            f"{place.name}: no folder of {shown_splits} names a class as those of the "
            "other splits do, so these samples have no label"
        )


def _common_kinds(iterators: Sequence[ImageFolderIterator]) -> dict[str, type]:
    """Return the types of columns that differ between the ``metadata.csv`` of several splits.

    A column is text if one of them holds text, or integers that no float holds; otherwise float,
    beside integers.
    """
    if len(iterators) < 2:
        return {}
    kinds: dict[str, set[type]] = {}
    has_large_integers: set[str] = set()
    for iterator in iterators:
        for name, values in iterator._find_images().columns.items():
            kinds_of_column = kinds.setdefault(name, set())
            # All values of a column in a file have the type of the first one.
            if values:
                kinds_of_column.add(type(values[0]))
            if any(_is_large_integer(value) for value in values):
                has_large_integers.add(name)

    common: dict[str, type] = {}
    for name, kinds_of_splits in kinds.items():
        if len(kinds_of_splits) > 1:
            must_be_text = str in kinds_of_splits or name in has_large_integers
            common[name] = str if must_be_text else float
    return common


def _is_large_integer(value: Any) -> bool:
    return isinstance(value, int) and abs(value) > _MAX_EXACT_INTEGER
