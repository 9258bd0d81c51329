"""Folders of images with a folder for each class, as in torchvision and Hugging Face.

``ROOT/cat/1.jpg`` is a sample of class ``cat``; labels number the classes in the order of their names (torchvision's
``ImageFolder``). Nested folders are classes such as
``round/circle``, see :mod:`data_stack.formats.class_folders`. A ``metadata.jsonl`` or ``metadata.csv`` in ``ROOT`` lists the
images in order by its column ``file_name``, with further columns (Hugging Face's ``imagefolder``).
"""

from __future__ import annotations

import functools
import io
import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from data_stack.codecs.codec import (
    Codecs,
    codec_of_content,
    decode_file,
    type_of_bytes,
    types_by_extension,
)
from data_stack.dataset.iterator import (
    AccessedDatasetIterator,
    ColumnKey,
    DatasetIteratorIF,
    Sample,
    SampleAccess,
)
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.exception import (
    ConfigError,
    DatasetFileCorruptError,
    ResourceNotFoundError,
)
from data_stack.formats.class_folders import ClassFolders, find_class_folders
from data_stack.formats.csv import Table
from data_stack.formats.fields_access import FieldsAccess
from data_stack.formats.split_names import warn_of_splits
from data_stack.formats.targets import with_target
from data_stack.io.account import LeftOut, PlaceAccount, account_of, is_hidden
from data_stack.io.content import contents_of_resources
from data_stack.io.folder import Folder, folder_of
from data_stack.io.progress import with_bar
from data_stack.io.resources import StreamedResource
from data_stack.io.versions import SeenVersions, version_of
from data_stack.util.executor import computing
from data_stack.util.logger import logger
from data_stack.util.program_lines import warn_program
from data_stack.util.request_limit import check_request, current_request, decoding_for
from data_stack.util.untrusted_text import distinct_fields, parse_json
from data_stack.values.text_numbers import numbers_of

METADATA_OF_IMAGES: Final = ("metadata.jsonl", "metadata.csv")
#: The rule that leaves a file out.
_NO_IMAGE: Final = "no image, by its suffix"
_METADATA_TABLE: Final = "metadata.csv"
#: float64 holds all integers up to here.
_MAX_EXACT_INTEGER: Final = 1 << 53
#: The name of the file that marks a local folder as unfinished.
UNFINISHED_MARK: Final = ".metadata.jsonl.part"
_MAX_METADATA_BYTES: Final = 1 << 30
#: Of so many folders in one folder the contents tell whether it is one of images.
_MAX_FOLDERS_IN_ONE: Final = 3
#: The limit of all folders that are looked into: each may be a request to a store.
_MAX_FOLDERS_TRIED: Final = 64
#: What a value of a column takes at least.
_CELL_BYTES: Final = 8
#: The column of the metadata that holds the path of the image.
FILE_NAME_COLUMN: Final = "file_name"


def _image_types() -> dict[str, str]:
    """The codecs of images by file suffix."""
    return {f".{extension}": name for extension, name in types_by_extension("image").items()}


def _visible(paths: Iterable[str]) -> list[str]:
    """The paths of files without hidden ones; but with the mark of a folder that is being written."""
    return [path for path in paths if not is_hidden(path) or path == UNFINISHED_MARK]


def _pictures_and_others(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """The paths of pictures, and those of other files."""
    types = _image_types()
    pictures: list[str] = []
    others: list[str] = []
    for name in names:
        is_picture = os.path.splitext(name)[1].lower() in types
        (pictures if is_picture else others).append(name)
    return pictures, others


def _check_class_names(class_names: Sequence[str]) -> tuple[str, ...]:
    names = tuple(class_names)
    if isinstance(class_names, str) or not all(isinstance(name, str) for name in names):
        raise ConfigError(
            f"class_names must be a list of names such as ['cat', 'dog'], got {class_names!r:.80}"
        )
    if len(set(names)) < len(names):
        raise ConfigError(f"class_names has a name twice: {', '.join(names)[:200]}")
    return names


def holds_images(names: Sequence[str]) -> bool:
    """Whether one of the files is an image, or the metadata of images."""
    types = _image_types()
    return any(
        os.path.splitext(name)[1].lower() in types or name in METADATA_OF_IMAGES for name in names
    )


def holds_images_below(folder: Folder, names: Sequence[str]) -> bool:
    """Whether a folder that holds ``names`` has images, or some of the first folders in it, at any depth.

    A folder is looked into before the folders in it are, and at most :data:`_MAX_FOLDERS_TRIED` are looked into.
    """
    waiting: deque[tuple[Folder, Sequence[str]]] = deque([(folder, names)])
    n_tried = 0
    while waiting:
        above, listed = waiting.popleft()
        if holds_images(listed):
            return True
        n_folders = 0
        for name in listed:
            if n_folders == _MAX_FOLDERS_IN_ONE or n_tried == _MAX_FOLDERS_TRIED:
                break
            if name.startswith("."):
                continue
            n_tried += 1
            below = above.subfolder(name)
            inside = below.list_names()
            if inside:  # it is a folder, not a file
                n_folders += 1
                waiting.append((below, inside))
    return False


# ---------------------------------------------------------------------- reading


@dataclass(frozen=True)
class _Index:
    """The images of a folder.

    Attributes:
        paths: paths of the images relative to the folder, in the order of the samples.
        columns: values by field, except the images.
        class_names: the classes by label; empty with metadata.
    """

    paths: list[str]
    columns: Mapping[str, list[Any]]
    class_names: tuple[str, ...]

    @functools.cached_property
    def seen(self) -> SeenVersions:
        """The versions of the images as they were first read."""
        return SeenVersions(len(self.paths))


class ImageFolderIterator(AccessedDatasetIterator):
    """Samples ``{"image", "label", "class", "path"}`` from images in a folder for each class.

    Images are sorted by class, then by path; ``label`` is the index of the class among all class names, sorted. The class is the
    path of the folder, ``round/circle``, without folders that are the only one in theirs. Images in
    ``root`` itself are samples ``{"image", "path"}``. With metadata, samples are ``{"image", …}`` with the columns of the
    metadata, in the order of its lines. Images are read on demand; reading labels reads no images.

    The folder is listed at the first access. Links are followed as :mod:`data_stack.io.tree` says.
    Files with other extensions are left out; one LeftOutWarning names them, except for documents and
    hidden files.

    Args:
        root: the folder: a path, a StorageConnector, or the Resources of a dataset.
        prefix: folder below it.
        decode: return images as arrays of their own type: uint8 of shape ``(height, width)`` or ``(height, width,
            channels)``, the indices of a palette, float32 of a TIFF file and so on, see :mod:`data_stack.codecs.images`;
            otherwise as the bytes of their files.
        metadata: use the metadata file, if there is one.
        codecs: custom codecs by ``"jpg"``, ``"png"``, ``"webp"``, ``"tiff"``, ``"bmp"``, ``"pnm"``, ``"gif"``:
            ``{"png": PngCodec(mode="RGB")}`` reads palettes as colours.
        on_error: ``"skip"`` decodes all images once, at the first access, and leaves out those that cannot be decoded; a warning
            in the log shows their number, and :attr:`broken` the reasons. ``"raise"`` raises when such an image is read.
        class_names: the classes in the order of their labels, such as those of the training split; None for those of the folders.

    Raises:
        ConfigError: at the first access: there are images both in ``root`` and in folders of classes, or in the folder of a class
            that is not in ``class_names``.
        DatasetFileCorruptError: at the first access: the metadata are damaged or do not match the images, or a writer has not
            finished. When a sample is read: an image is damaged.
        MaliciousFilePathError: when a sample is read: its image is a link to a file outside ``root``.
    """

    _keeps_access = False

    def __init__(
        self,
        root: Any,
        *,
        prefix: str = "",
        decode: bool = True,
        metadata: bool = True,
        codecs: Codecs | None = None,
        on_error: Literal["raise", "skip"] = "raise",
        class_names: Sequence[str] | None = None,
    ) -> None:
        if on_error not in ("raise", "skip"):
            raise ConfigError(f"on_error must be 'raise' or 'skip', got {on_error!r:.60}")
        self._class_names = None if class_names is None else _check_class_names(class_names)
        self._class_folders: ClassFolders | None = None
        self._below: tuple[str, ...] | None = None
        self._kinds_of_columns: Mapping[str, type] = {}
        self._broken: dict[str, str] | None = None if on_error == "skip" else {}
        self._folder = folder_of(root, prefix)
        self._decodes, self._metadata, self._given_codecs = decode, metadata, codecs
        self._found: _Index | None = None
        self._account: PlaceAccount | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_found": None}

    @property
    def class_names(self) -> tuple[str, ...]:
        """The classes in the order of their labels; empty with metadata."""
        return self._index().class_names

    def look_around(self) -> PlaceAccount:
        """What else is in the folder, from a listing; no image is read, and nothing is warned of."""
        files, links = self._folder.survey()
        images, _ = _pictures_and_others(_visible(files))
        return self._account_for(images, files, links)

    @property
    def account(self) -> PlaceAccount:
        """What else is in the folder, and why it is left out; LeftOutWarning named what may be data."""
        self._index()
        return self._account or PlaceAccount(self._folder.full_name(""), 0)

    @property
    def broken(self) -> dict[str, str]:
        """The images that ``on_error="skip"`` leaves out: why, by their paths."""
        self._index()
        return dict(self._broken or {})

    _repr_details = property(
        lambda self: f" without {len(self._broken):,} broken images" if self._broken else ""
    )

    @property
    def fields(self) -> tuple[str, ...]:
        """The keys of a sample."""
        return ("image", *self._index().columns)

    def make_access(self) -> SampleAccess:
        return _ImagesAccess(self)

    def _read_image(self, position: int) -> Any:
        """Read an image, and note the version of its file for the fingerprint."""
        index = self._index()
        path = index.paths[position]
        with self._open(path) as resource:
            index.seen.is_first(position, version_of(resource))
            data = resource.read()
        return self._decoded(path, data, self._decodes)

    def _read(self, path: str, decodes: bool) -> Any:
        with self._open(path) as resource:
            data = resource.read()
        return self._decoded(path, data, decodes)

    def _decoded(self, path: str, data: bytes, decodes: bool) -> Any:
        if not decodes:
            return data
        name = self._folder.full_name(path)
        try:
            codec = codec_of_content(data, _type_of(path), self._given_codecs)
        except ValueError as error:
            raise DatasetFileCorruptError(f"{name} cannot be decoded: {error}") from error
        return decode_file(codec, data, name)

    def _type_of_content(self, path: str) -> str:
        """The type of an image by its content, which may be another than its suffix says."""
        with self._open(path) as resource:
            start = resource.read(16)
        content = type_of_bytes(start)
        if content is None or content not in types_by_extension("image").values():
            return _type_of(path)
        return content

    def _arguments(self) -> dict[str, Any]:
        return {"decode": self._decodes, "codecs": self._given_codecs}

    # ------------------------------------------------------------------ what there is

    def _index(self) -> _Index:
        if self._found is None:
            self._found = self._without_broken(self._look_through())
        return self._found

    def _without_broken(self, index: _Index) -> _Index:
        if self._broken is None:
            found = computing.map(self._why_broken, index.paths, at_once=64)
            reasons = with_bar(
                found,
                None,
                desc=f"decoding {self._folder.name}",
                total=len(index.paths),
                unit=" images",
            )
            self._broken = {
                path: why for path, why in zip(index.paths, reasons, strict=True) if why is not None
            }
            if self._broken:
                shown = "; ".join([*self._broken.values()][:5] + ["…"] * (len(self._broken) > 5))
                told = (self._folder.name, len(self._broken), len(index.paths), shown)
                logger.warning(
                    "%s: %d of %d images are broken and left out, see `.broken`: %s", *told
                )
        if not self._broken:
            return index
        kept = [number for number, path in enumerate(index.paths) if path not in self._broken]
        columns = {
            name: [values[number] for number in kept] for name, values in index.columns.items()
        }
        return _Index([index.paths[number] for number in kept], columns, index.class_names)

    def _why_broken(self, path: str) -> str | None:
        try:
            self._read(path, decodes=True)
        except DatasetFileCorruptError as error:
            return str(error)
        return None

    def _give_account(
        self, images: Sequence[str], files: Sequence[str], links: Sequence[LeftOut]
    ) -> None:
        """Account for the folder, and warn, once: not again in a worker process."""
        if self._account is None:
            self._account = self._account_for(images, files, links)
            self._account.warn()

    def _account_for(
        self, images: Sequence[str], files: Sequence[str], links: Sequence[LeftOut]
    ) -> PlaceAccount:
        read = [*images, *set(METADATA_OF_IMAGES).intersection(files)]
        return account_of(self._folder.full_name(""), read, files, _NO_IMAGE, links)

    def _look_through(self) -> _Index:
        root = self._folder.path
        if root is not None and not root.is_dir():
            raise ResourceNotFoundError(str(root))
        files, links = self._folder.survey()
        names = _visible(files)
        if UNFINISHED_MARK in names:
            raise DatasetFileCorruptError(
                f"{self._folder.name} is unfinished; write it again, or remove {UNFINISHED_MARK}"
            )
        images, others = _pictures_and_others(names)
        self._give_account(images, files, links)
        if self._class_folders is None and self._class_names is None and self._below is None:
            folders_in_it = {path.partition("/")[0] for path in images if "/" in path}
            advice = "open one of these folders"
            warn_of_splits(self._folder.name, {name: name for name in folders_in_it}, advice)
        metadata = next((name for name in METADATA_OF_IMAGES if name in names), None)
        if metadata is not None and self._metadata:
            return self._by_metadata(metadata, images)
        in_root = [path for path in images if "/" not in path]
        if in_root and len(in_root) < len(images):
            raise ConfigError(
                f"{self._folder.name} contains images, such as {in_root[0]!r}, and folders of images"
            )
        folders = self._class_folders
        if folders is None:
            folders = find_class_folders({"": images}, others)
        class_of_image = {path: folders.class_of(path) or "" for path in images}
        if images and not any(class_of_image.values()):
            return _Index(sorted(images), {"path": sorted(images)}, ())
        class_names = folders.class_names if self._class_names is None else self._class_names
        labels = {name: label for label, name in enumerate(class_names)}
        for path, name in class_of_image.items():
            if name not in labels:
                raise ConfigError(
                    f"{self._folder.full_name(path)} is in the folder of class {name!r:.80}, which is not "
                    f"among the classes {', '.join(class_names[:20])}; open the place again, or name it "
                    f"in class_names="
                )
        images.sort(key=lambda path: (class_of_image[path], *path.rpartition("/")[::2]))
        columns: dict[str, list[Any]] = {
            "label": [labels[class_of_image[path]] for path in images],
            "class": [class_of_image[path] for path in images],
            "path": images,
        }
        return _Index(images, columns, class_names)

    def _by_metadata(self, metadata: str, images: list[str]) -> _Index:
        what = self._folder.full_name(metadata)
        with self._folder.open(metadata) as resource:
            data = resource.read(_MAX_METADATA_BYTES + 1)
        if len(data) > _MAX_METADATA_BYTES:
            raise DatasetFileCorruptError(f"{what} has more than {_MAX_METADATA_BYTES:,} bytes")
        columns = (
            _jsonl_columns(data, what)
            if metadata.endswith(".jsonl")
            else _csv_columns(data, what, self._kinds_of_columns)
        )
        paths, known = columns.pop(FILE_NAME_COLUMN, [None]), set(images)
        for line, path in enumerate(paths):
            if not isinstance(path, str) or path not in known:
                raise DatasetFileCorruptError(
                    f"{what}, row {line}: image {path!r:.200} does not exist"
                )
        if not_listed := known.difference(paths):
            raise DatasetFileCorruptError(
                f"{what} does not list {min(not_listed)!r}; metadata=False ignores the file"
            )
        if "image" in columns:
            raise DatasetFileCorruptError(
                f"{what} has a column 'image', a name that is reserved for the images"
            )
        if self._below is not None:  # the metadata list the images of all splits
            below = self._below
            rows = [row for row, path in enumerate(paths) if path.startswith(below)]
            paths = [paths[row] for row in rows]
            columns = {name: [values[row] for row in rows] for name, values in columns.items()}
        return _Index(paths, columns, ())

    def _open(self, path: str) -> StreamedResource:
        return self._folder.open(path)


def _agree_on_kinds(iterators: Sequence[ImageFolderIterator]) -> None:
    """Give a column of the ``metadata.csv`` of several splits one kind: text if one of them holds text, float beside int."""
    kinds: dict[str, set[type]] = {}
    large: set[str] = set()
    for iterator in iterators if len(iterators) > 1 else ():
        for name, values in iterator._look_through().columns.items():
            kinds.setdefault(name, set()).update(type(value) for value in values[:1])
            if any(isinstance(value, int) and abs(value) > _MAX_EXACT_INTEGER for value in values):
                large.add(name)
    common: dict[str, type] = {}
    for name, of_splits in kinds.items():
        if len(of_splits) > 1:
            common[name] = str if str in of_splits or name in large else float
    for iterator in iterators:
        iterator._kinds_of_columns = common


def open_splits_of_images(
    place: Folder,
    splits: Mapping[str, Sequence[str]],
    *,
    on_error: Literal["raise", "skip"] = "raise",
    class_names: Sequence[str] | None = None,
) -> dict[str, list[ImageFolderIterator]]:
    """The images of each split, one iterator for each of its folders. A class has one number in all of them.

    A ``metadata.csv`` or ``metadata.jsonl`` beside the folders is that of all splits.

    Args:
        place: the folder that holds the folders.
        splits: the names of the folders of each split.
        on_error: as for :class:`ImageFolderIterator`.
        class_names: as for :class:`ImageFolderIterator`.

    Raises:
        ConfigError: as for :class:`ImageFolderIterator`.

    Warns:
        UserWarning: there are classes, and a split has none.
    """
    opened: dict[str, list[ImageFolderIterator]] = {}
    if any(place.has_file(name) for name in METADATA_OF_IMAGES):
        for split, folders in splits.items():
            iterator = ImageFolderIterator(place, on_error=on_error, class_names=class_names)
            iterator._below = tuple(f"{folder}/" for folder in folders)
            opened[split] = [iterator]
        return opened
    pictures: dict[str, list[str]] = {}
    with_table: list[ImageFolderIterator] = []
    others: list[str] = []
    for split, folders in splits.items():
        opened[split] = []
        pictures[split] = []
        for name in folders:
            folder = place.subfolder(name)
            opened[split].append(
                ImageFolderIterator(folder, on_error=on_error, class_names=class_names)
            )
            files = _visible(folder.list_files())
            if _METADATA_TABLE in files:
                with_table.append(opened[split][-1])
            if not any(metadata in files for metadata in METADATA_OF_IMAGES):
                images, beside = _pictures_and_others(files)
                pictures[split] += images
                others += beside
    _agree_on_kinds(with_table)
    class_folders = find_class_folders(pictures, others)
    for iterators in opened.values():
        for iterator in iterators:
            iterator._class_folders = class_folders
    without_class = [
        split
        for split, paths in pictures.items()
        if paths and not any(class_folders.class_of(path) for path in paths)
    ]
    if class_folders.class_names and without_class:
        warn_program(
            f"{place.name}: no folder of {', '.join(without_class)} names a class as those of the other "
            f"splits do, so these samples have no label"
        )
    return opened


class _ImagesAccess(FieldsAccess):
    """Access to images, which are decoded on demand."""

    source: ImageFolderIterator

    releases_gil = property(lambda self: self.source._decodes)  # as PIL does while it decodes
    n_at_once = 8  # each is a file of its own; a few share what a request costs
    n_samples = property(lambda self: len(self.source._index().paths))

    def sample(self, position: int) -> Sample:
        index = self.source._index()
        image = self.source._read_image(position)
        return {
            "image": image,
            **{name: values[position] for name, values in index.columns.items()},
        }

    def samples(self, positions: IndexArrayOfInts) -> list[Sample]:
        with decoding_for(current_request()):
            return super().samples(positions)

    def fields(self) -> Sequence[str]:
        return self.source.fields

    def values(self, field: str, positions: Sequence[int]) -> list[Any]:
        index = self.source._index()
        if field != "image":
            return [index.columns[field][position] for position in positions]
        with decoding_for(current_request()):
            return [self.source._read_image(position) for position in positions]

    def iterate_column(self, key: ColumnKey, positions: IndexArrayOfInts) -> Iterator[Any] | None:
        if key != "image" or not self.source._decodes:
            return None
        return map(self.source._read_image, positions.tolist())

    def locate(self, position: int) -> str:
        return self.source._folder.full_name(self.source._index().paths[position])

    def _open_first(self, position: int) -> StreamedResource:
        """Open an image that is the one that was read first.

        Raises:
            ResourceChangedError: it was replaced or changed.
        """
        index = self.source._index()
        path = index.paths[position]
        name = self.source._folder.full_name(path)
        return index.seen.open_first(position, name, self.source._open(path))

    def content_fingerprint(self) -> dict[str, Any]:
        found = self.source._index()
        images = contents_of_resources(
            [functools.partial(self._open_first, position) for position in range(self.n_samples)]
        )
        return {"columns": dict(found.columns), "images": images}


def _type_of(path: str) -> str:
    return _image_types()[os.path.splitext(path)[1].lower()]


def _jsonl_columns(data: bytes, what: str) -> dict[str, list[Any]]:
    rows = []
    for number, line in enumerate(data.splitlines(), 1):
        try:
            row = parse_json(line, max_bytes=None, object_pairs_hook=distinct_fields)
        except ValueError as error:
            raise DatasetFileCorruptError(
                f"{what}, line {number}: invalid JSON: {str(error)[:200]}"
            ) from error
        if not isinstance(row, dict):
            raise DatasetFileCorruptError(
                f"{what}, line {number}: expected an object with a {FILE_NAME_COLUMN!r}"
            )
        rows.append(row)
    names = dict.fromkeys([FILE_NAME_COLUMN, *(name for row in rows for name in row)])
    check_request(_CELL_BYTES * len(rows) * len(names), f"the columns of {what}")
    return {name: [row.get(name) for row in rows] for name in names}


def _csv_columns(data: bytes, what: str, kinds: Mapping[str, type]) -> dict[str, list[Any]]:
    """Columns of int if all values are integers, float if all are numbers, otherwise str; or of given kinds."""
    table = Table(io.BytesIO(data), what, True, 0, ",", "utf-8", ())
    for name in table.names:
        table.position_of(name)  # of two columns with one name, one would be lost
    texts = table.columns(dict.fromkeys(range(len(table.names)), np.dtype(str)))
    columns: dict[str, list[Any]] = {}
    for name, values in zip(table.names, texts.values(), strict=True):
        cells = values.tolist()
        is_text = name == FILE_NAME_COLUMN or kinds.get(name) is str
        numbers = None if is_text else numbers_of(cells)
        if numbers is not None and kinds.get(name) is float:
            numbers = [float(number) for number in numbers]
        columns[name] = cells if numbers is None else numbers
    return columns


def types_of_contents(images: ImageFolderIterator) -> set[str]:
    """Return the types of all images of a folder by their contents."""
    paths = images._index().paths
    return set(computing.map(images._type_of_content, paths, at_once=64))


def with_labels(iterator: ImageFolderIterator, target: str | None = None) -> DatasetIteratorIF:
    """The images of a folder with a meta that says which column is the target: the label, if there are classes.

    Raises:
        ConfigError: the target does not exist.
    """
    target = "label" if target is None and iterator.class_names else target
    return with_target(
        iterator,
        "folder",
        iterator.fields,
        target,
        iterator.class_names if target == "label" else (),
        "image",
    )
