"""Samples from folders of images with a folder for each class, as in torchvision and Hugging Face.

``ROOT/cat/1.jpg`` is a sample of class ``cat``; labels number the classes in the order of their
names (torchvision's ``ImageFolder``). Nested folders are classes such as ``round/circle``, see
:mod:`data_stack.formats.class_folders`. A ``metadata.jsonl`` or ``metadata.csv`` in ``ROOT`` lists
the images in order by its column ``file_name``, with further columns (Hugging Face's
``imagefolder``).
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from data_stack.codecs.codec import Codecs
from data_stack.codecs.decoding import ContentCodecs, decode_file
from data_stack.codecs.registry import type_of_bytes, types_by_extension
from data_stack.dataset.iterator import (
    AccessedDatasetIterator,
    ColumnKey,
    DatasetIteratorIF,
    Sample,
    SampleAccess,
)
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.exception import ConfigError, DatasetFileCorruptError, ResourceNotFoundError
from data_stack.formats.class_folders import ClassFolders, find_class_folders
from data_stack.formats.fields_access import FieldsAccess
from data_stack.formats.image_files import (
    METADATA_OF_IMAGES,
    UNFINISHED_MARK,
    ImageFiles,
    images_among,
    suffix_of,
    visible_files,
)
from data_stack.formats.image_index import ImageIndex, index_by_classes
from data_stack.formats.image_metadata import FILE_NAME_COLUMN, read_image_metadata
from data_stack.formats.split_names import warn_of_splits
from data_stack.formats.targets import with_target
from data_stack.io.account import LeftOut, PlaceAccount, account_of
from data_stack.io.content import contents_of_resources
from data_stack.io.folder import Folder, folder_of
from data_stack.io.progress import with_bar
from data_stack.io.resources import StreamedResource
from data_stack.util.executor import computing
from data_stack.util.forks import fork_lock
from data_stack.util.logger import logger
from data_stack.util.request_limit import current_request, decoding_for

#: The rule that leaves a file out.
_NO_IMAGE: Final = "no image, by its suffix"

#: How many images are decoded at once, or opened to find out their types.
_IMAGES_AT_ONCE: Final = 64

#: How many bytes at the start of a file tell its type.
_N_START_BYTES: Final = 16

#: How many broken images a message names.
_MAX_BROKEN_SHOWN: Final = 5

#: The attributes of an iterator that another process makes itself.
_OF_THIS_PROCESS: Final = ("_index", "_image_types", "_content_codecs", "_lock")


@dataclass(frozen=True)
class SplitAgreement:
    """What the iterators of the splits of a place have in common.

    Attributes:
        class_folders: the classes of all splits; None if the iterator finds its own.
        folders: the folders of the images of this split, each with a ``/`` at its end, if the
            metadata list the images of all splits; None for all images.
        kinds_of_columns: the types of columns of a CSV file with metadata that differ between
            splits.
    """

    class_folders: ClassFolders | None = None
    folders: tuple[str, ...] | None = None
    kinds_of_columns: Mapping[str, type] = field(default_factory=dict)


class ImageFolderIterator(AccessedDatasetIterator):
    """Samples ``{"image", "label", "class", "path"}`` from images in a folder for each class.

    Images are sorted by class, then by path; ``label`` is the index of the class among all class
    names, sorted. The class is the path of the folder, ``round/circle``, without those folders in
    it that have no other folder beside them. Images in ``root`` itself are samples ``{"image",
    "path"}``. With metadata, a sample has the image and the columns of the metadata, and samples
    are in the order of its lines. Images are read on demand; reading labels reads no images.

    The folder is listed at the first access. Links are followed as :mod:`data_stack.io.tree` says.
    Files with other extensions are left out; one LeftOutWarning names them, except for documents
    and hidden files.

    Args:
        root: the folder: a path, a StorageConnector, or the Resources of a dataset.
        prefix: folder below it.
        decode: return images as arrays of their own type: uint8 of shape ``(height, width)`` or
            ``(height, width, channels)``, the indices of a palette, float32 of a TIFF file and so
            on, see :mod:`data_stack.codecs.images`; otherwise as the bytes of their files.
        metadata: use the metadata file, if there is one.
        codecs: custom codecs by ``"jpg"``, ``"png"``, ``"webp"``, ``"tiff"``, ``"bmp"``, ``"pnm"``,
            ``"gif"``: ``{"png": PngCodec(mode="RGB")}`` reads palettes as colours.
        on_error: ``"skip"`` decodes all images once, at the first access, and leaves out those that
            cannot be decoded; a warning in the log shows their number, and :attr:`broken` the
            reasons. ``"raise"`` raises when such an image is read.
        class_names: the classes in the order of their labels, such as those of the training split;
            None for those of the folders.

    Raises:
        ConfigError: at the first access: there are images both in ``root`` and in folders of
            classes, or in the folder of a class that is not in ``class_names``.
        DatasetFileCorruptError: at the first access: the metadata are damaged or do not match the
            images, or a writer has not finished. When a sample is read: an image is damaged.
        MaliciousFilePathError: when a sample is read: its image is a link to a file outside
            ``root``.
    """

    #: The access refers to the iterator: they would keep each other in memory.
    _keeps_access = False

    #: The folder of the images.
    _folder: Folder
    #: Whether images are decoded; otherwise they are the bytes of their files.
    _decodes: bool
    #: Whether the metadata file is used, if there is one.
    _uses_metadata: bool
    #: The codecs that a user gave, by type.
    _codecs: Codecs | None
    #: The classes that a user gave, in the order of their labels.
    _class_names: tuple[str, ...] | None
    #: Whether broken images are left out.
    _skips_broken: bool
    #: Why images are broken, by their paths; None before all images were decoded to find out.
    _broken: dict[str, str] | None
    #: What the splits of a place have in common; set by :func:`open_splits_of_images`.
    _agreement: SplitAgreement
    #: The images; None before the first access.
    _index: ImageIndex | None
    #: Which files of the folder are left out; None before the first access.
    _account: PlaceAccount | None
    #: The types of images by the suffixes of their files, without the dot; empty before the first
    #: access.
    _image_types: Mapping[str, str]
    #: The codecs of the images.
    _content_codecs: ContentCodecs
    #: Held by the thread that lists the folder.
    _lock: threading.Lock

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
        self._folder = folder_of(root, prefix)
        self._decodes = decode
        self._uses_metadata = metadata
        self._codecs = codecs
        self._class_names = None if class_names is None else _check_class_names(class_names)
        self._skips_broken = on_error == "skip"
        self._broken = None
        self._agreement = SplitAgreement()
        self._account = None
        self._start_afresh()

    def _start_afresh(self) -> None:
        """Forget the index, in a new iterator or another process."""
        self._index = None
        self._image_types = {}
        self._content_codecs = ContentCodecs(self._codecs)
        self._lock = fork_lock()

    def __getstate__(self) -> dict[str, Any]:
        # Another process lists the folder itself: the index of a million images would be large.
        state = dict(self.__dict__)
        for name in _OF_THIS_PROCESS:
            del state[name]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start_afresh()

    # ------------------------------------------------------------------ what there is

    @property
    def class_names(self) -> tuple[str, ...]:
        """The classes in the order of their labels; empty with metadata."""
        return self._get_index().class_names

    @property
    def fields(self) -> tuple[str, ...]:
        """The keys of a sample."""
        return ("image", *self._get_index().columns)

    @property
    def account(self) -> PlaceAccount:
        """The files in the folder that are no samples, and why they are left out.

        A LeftOutWarning named those that may be data.
        """
        self._get_index()
        return self._account or PlaceAccount(self._folder.full_name(""), 0)

    @property
    def broken(self) -> dict[str, str]:
        """Why ``on_error="skip"`` leaves images out, by their paths."""
        self._get_index()
        return dict(self._broken or {})

    def look_around(self) -> PlaceAccount:
        """Return the :attr:`account` of the folder without reading images or warning."""
        paths, links = self._folder.survey()
        images = images_among(visible_files(paths)).images
        return self._account_for(images, paths, links)

    @property
    def _repr_details(self) -> str:  # type: ignore[override]  # read-only here
        if not self._broken:
            return ""
        return f" without {len(self._broken):,} broken images"

    def make_access(self) -> SampleAccess:
        return _ImagesAccess(self)

    def _arguments(self) -> dict[str, Any]:
        return {"decode": self._decodes, "codecs": self._codecs}

    # ------------------------------------------------------------------ reading images

    def _read_image(self, position: int) -> Any:
        """Read an image, and note the version of its file for the fingerprint."""
        index = self._get_index()
        path = index.paths[position]
        data, version = self._folder.read_whole(path)
        index.seen.is_unchanged(position, version)
        if not self._decodes:
            return data
        return self._decode(path, data)

    def _decode(self, path: str, data: bytes) -> Any:
        """Decode an image.

        Args:
            path: the path of the image in the folder.
            data: the bytes of its file.

        Raises:
            DatasetFileCorruptError: the image is damaged.
        """
        name = self._folder.full_name(path)
        hint = ""
        if not self._skips_broken:
            hint = "; on_error='skip' leaves out such images (-O on_error=skip in the shell)"
        try:
            codec = self._content_codecs.codec_of(data, self._type_of_suffix(path))
        except ValueError as error:
            raise DatasetFileCorruptError(f"{name} cannot be decoded: {error}{hint}") from error
        return decode_file(codec, data, name, hint)

    def _type_of_content(self, path: str) -> str:
        """Return the type of an image by its content; by its suffix if that tells nothing."""
        with self._folder.open(path) as resource:
            start = resource.read(_N_START_BYTES)
        type_name = type_of_bytes(start)
        if type_name is None or type_name not in self._image_types.values():
            return self._type_of_suffix(path)
        return type_name

    def _type_of_suffix(self, path: str) -> str:
        """Return the type of an image by the suffix of its file.

        Raises:
            DatasetFileCorruptError: the suffix is not one of images.
        """
        type_name = self._image_types.get(suffix_of(path))
        if type_name is None:
            raise DatasetFileCorruptError(f"{path!r:.200} has no suffix of an image")
        return type_name

    # ------------------------------------------------------------------ the index of images

    def _get_index(self) -> ImageIndex:
        """Return the images of the folder, which is listed at the first call."""
        if self._index is None:
            with self._lock:
                # Another thread may have listed it while this one waited.
                if self._index is None:
                    self._index = self._without_broken(self._find_images())
        return self._index

    def _find_images(self) -> ImageIndex:
        """List the folder, and return its images with their classes or metadata.

        Raises:
            ResourceNotFoundError: the folder does not exist.
            ConfigError, DatasetFileCorruptError: as for :class:`ImageFolderIterator` at the first
                access.
        """
        root = self._folder.path
        if root is not None and not root.is_dir():
            raise ResourceNotFoundError(str(root))
        paths, links = self._folder.survey()
        visible = visible_files(paths)
        if UNFINISHED_MARK in visible:
            raise DatasetFileCorruptError(
                f"{self._folder.name} is unfinished; write it again, or remove {UNFINISHED_MARK}"
            )
        self._image_types = types_by_extension("image")
        files = images_among(visible)
        self._give_account(files.images, paths, links)
        self._warn_of_splits(files.images)

        if self._uses_metadata:
            for name in METADATA_OF_IMAGES:
                if name in visible:
                    return self._index_by_metadata(name, files.images)
        return self._index_by_folders(files)

    def _index_by_metadata(self, name: str, images: list[str]) -> ImageIndex:
        """Return the images that a metadata file lists, in its order, with its columns."""
        kinds = self._agreement.kinds_of_columns
        columns = read_image_metadata(self._folder, name, images, kinds)
        paths = columns.pop(FILE_NAME_COLUMN)
        index = ImageIndex(paths, columns, ())
        folders = self._agreement.folders
        if folders is None:
            return index
        numbers = [number for number, path in enumerate(paths) if path.startswith(folders)]
        return index.select(numbers)

    def _index_by_folders(self, files: ImageFiles) -> ImageIndex:
        """Return the images with the classes that their folders name, in the order of these."""
        class_folders = self._agreement.class_folders
        if class_folders is None:
            class_folders = find_class_folders({"": files.images}, files.others)
        return index_by_classes(self._folder, files.images, class_folders, self._class_names)

    def _warn_of_splits(self, images: Sequence[str]) -> None:
        """Warn if the folders of images are named as splits.

        There is no warning if the user named the classes, or if this is the iterator of a split.
        """
        is_split = self._agreement.class_folders is not None or self._agreement.folders is not None
        if is_split or self._class_names is not None:
            return
        folders = {path.partition("/")[0] for path in images if "/" in path}
        advice = "open one of these folders"
        warn_of_splits(self._folder.name, {name: name for name in folders}, advice)

    # ------------------------------------------------------------------ what is left out

    def _without_broken(self, index: ImageIndex) -> ImageIndex:
        """Leave out the images that cannot be decoded, if a user wants that."""
        if not self._skips_broken:
            return index
        # Images are decoded once, not again in each worker process, which gets the result.
        if self._broken is None:
            self._broken = self._find_broken(index.paths)
        broken = self._broken
        if not broken:
            return index
        numbers = [number for number, path in enumerate(index.paths) if path not in broken]
        return index.select(numbers)

    def _find_broken(self, paths: Sequence[str]) -> dict[str, str]:
        """Decode all images, and log how many are broken.

        Args:
            paths: the paths of the images.

        Returns:
            Why images are broken, by their paths.
        """
        problems = with_bar(
            computing.map(self._problem_of_image, paths, at_once=_IMAGES_AT_ONCE),
            None,
            desc=f"decoding {self._folder.name}",
            total=len(paths),
            unit=" images",
        )
        broken = {
            path: problem
            for path, problem in zip(paths, problems, strict=True)
            if problem is not None
        }
        if broken:
            shown_problems = list(broken.values())[:_MAX_BROKEN_SHOWN]
            if len(broken) > len(shown_problems):
                shown_problems.append("…")
            logger.warning(
                "%s: %d of %d images are broken and left out, see `.broken`: %s",
                self._folder.name,
                len(broken),
                len(paths),
                "; ".join(shown_problems),
            )
        return broken

    def _problem_of_image(self, path: str) -> str | None:
        """Return why an image cannot be decoded; None if it can."""
        try:
            data, _ = self._folder.read_whole(path)
            self._decode(path, data)
        except DatasetFileCorruptError as error:
            return str(error)
        return None

    def _give_account(
        self, images: Sequence[str], paths: Sequence[str], links: Sequence[LeftOut]
    ) -> None:
        """Account for the folder, and warn of files that are left out.

        This is done once: a worker process gets the account.
        """
        if self._account is None:
            self._account = self._account_for(images, paths, links)
            self._account.warn()

    def _account_for(
        self, images: Sequence[str], paths: Sequence[str], links: Sequence[LeftOut]
    ) -> PlaceAccount:
        """Return the account of the folder.

        Args:
            images: the paths of the images.
            paths: the paths of all files.
            links: the links that are not followed.
        """
        metadata = set(METADATA_OF_IMAGES).intersection(paths)
        return account_of(self._folder.full_name(""), [*images, *metadata], paths, _NO_IMAGE, links)


def _check_class_names(class_names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of classes that a user gave.

    Raises:
        ConfigError: ``class_names`` is not a list of different names.
    """
    names = tuple(class_names)
    if isinstance(class_names, str) or not all(isinstance(name, str) for name in names):
        raise ConfigError(
            f"class_names must be a list of names such as ['cat', 'dog'], got {class_names!r:.80}"
        )
    if len(set(names)) < len(names):
        raise ConfigError(f"class_names has a name twice: {', '.join(names)[:200]}")
    return names


def types_of_contents(images: ImageFolderIterator) -> set[str]:
    """Return the types of all images of a folder by their contents."""
    paths = images._get_index().paths
    return set(computing.map(images._type_of_content, paths, at_once=_IMAGES_AT_ONCE))


def with_labels(images: ImageFolderIterator, target: str | None = None) -> DatasetIteratorIF:
    """Return the images of a folder with a ``dataset_meta`` that names the target.

    Args:
        images: the images.
        target: the name of the column; None for the label, if there are classes.

    Raises:
        ConfigError: the target does not exist.
    """
    if target is None and images.class_names:
        target = "label"
    class_names = images.class_names if target == "label" else ()
    return with_target(images, "folder", images.fields, target, class_names, "image")


class _ImagesAccess(FieldsAccess):
    """Access to images, which are decoded on demand."""

    source: ImageFolderIterator

    #: Each image is a file of its own; a few share what a request costs.
    n_at_once = 8

    @property
    def releases_gil(self) -> bool:  # type: ignore[override]  # read-only here
        """Whether images are decoded, during which PIL releases the GIL."""
        return self.source._decodes

    @property
    def n_samples(self) -> int:  # type: ignore[override]  # read-only here
        return len(self.source._get_index().paths)

    def sample(self, position: int) -> Sample:
        index = self.source._get_index()
        sample = {"image": self.source._read_image(position)}
        for name, values in index.columns.items():
            sample[name] = values[position]
        return sample

    def samples(self, positions: IndexArrayOfInts) -> list[Sample]:
        with decoding_for(current_request()):
            return super().samples(positions)

    def fields(self) -> Sequence[str]:
        return self.source.fields

    def values(self, field: str, positions: Sequence[int]) -> list[Any]:
        index = self.source._get_index()
        if field != "image":
            return [index.columns[field][position] for position in positions]
        with decoding_for(current_request()):
            return [self.source._read_image(position) for position in positions]

    def iterate_column(self, key: ColumnKey, positions: IndexArrayOfInts) -> Iterator[Any] | None:
        if key != "image" or not self.source._decodes:
            return None
        return map(self.source._read_image, positions.tolist())

    def locate(self, position: int) -> str:
        return self.source._folder.full_name(self.source._get_index().paths[position])

    def content_fingerprint(self) -> dict[str, Any]:
        index = self.source._get_index()
        opens = [
            functools.partial(self._open_first, position) for position in range(self.n_samples)
        ]
        return {"columns": dict(index.columns), "images": contents_of_resources(opens)}

    def _open_first(self, position: int) -> StreamedResource:
        """Open the file of an image, which must be the version that was read first.

        Raises:
            ResourceChangedError: the file was replaced or changed.
        """
        index = self.source._get_index()
        path = index.paths[position]
        name = self.source._folder.full_name(path)
        return index.seen.check_opened(position, name, self.source._folder.open(path))
