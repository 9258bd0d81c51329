"""Samples of WebDataset's shards: tar files in which the files of one sample share a name.

Source: WebDataset 1.0.2, https://github.com/webdataset/webdataset (``tariterators.py``,
``autodecode.py``)
"""

from __future__ import annotations

import bisect
import functools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from data_stack.codecs.codec import MEDIA_KINDS, Codec
from data_stack.codecs.decoding import ContentCodecs, decode_file
from data_stack.codecs.registry import types_by_extension
from data_stack.dataset.iterator import (
    AccessedDatasetIterator,
    ColumnKey,
    Sample,
    SampleAccess,
)
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.exception import ConfigError, DatasetFileCorruptError, RequestLimitError
from data_stack.formats.fields_access import FieldsAccess
from data_stack.formats.remote import RemoteAccess
from data_stack.formats.webdataset_fields import (
    KEY,
    FieldType,
    codec_of_field,
    extension_of_field,
)
from data_stack.formats.webdataset_index import ShardIndex, ShardIndexer
from data_stack.formats.webdataset_kept import KeptPieces
from data_stack.formats.webdataset_shards import OpenShards
from data_stack.io.account import LeftOut, PlaceAccount
from data_stack.io.content import contents_of_resources
from data_stack.io.location import Location, is_path_or_url, location_of
from data_stack.util.executor import waiting
from data_stack.util.forks import fork_lock
from data_stack.util.request_limit import current_request, decoding_for
from data_stack.util.suggestions import did_you_mean

#: The number of samples that an iteration reads together.
_SAMPLES_AT_ONCE: Final = 64

#: The number of samples whose files are read together, where they are decoded one by one. A batch
#: is one request to each shard, and a whole column is not in memory at once.
_FILES_AT_ONCE: Final = 1024

#: The number of shards whose headers are read side by side, as each read waits for a store.
_SHARDS_AT_ONCE: Final = 16

#: The number of pieces of 1 MiB that are requested before they are needed, of all shards whose
#: headers are read side by side.
_PIECES_AT_ONCE: Final = 16

#: The files of neighbours begin and end within blocks of the store, of which more bytes come along.
#: Without them, three windows of a block-wise shuffle exceeded the cache: an epoch of 100 MB took
#: 860 requests and 186 MB.
_SHARE_AROUND_FILES: Final = 1 / 6

#: The attributes that another process gets; it opens the shards itself.
_PICKLED: Final = (
    "_shards",
    "_fields",
    "_types",
    "_max_kept_bytes",
    "account",
    "_has_account_of_shards",
)

#: The limit of the shards that are kept in memory. webdataset's loader takes as much for its buffer
#: of 1,000 samples of 250 KB.
_MAX_KEPT_BYTES: Final = 256 << 20


@dataclass(slots=True)
class _FileToRead:
    """A file that is read for a sample.

    Attributes:
        sample: the sample, whose value is replaced.
        field: the field of the value.
        offset: the first byte of the file in its shard.
        size: the size of the file in bytes.
        shard_number: the number of its shard.
    """

    sample: dict[str, Any]
    field: str
    offset: int
    size: int
    shard_number: int


class WebDatasetIterator(AccessedDatasetIterator):
    """The samples of WebDataset shards, as dicts.

    A sample has ``__key__``, and an entry for each of its files.
    The first access reads the headers of all shards; later only the bytes of the requested samples
    and fields are read. Nothing is extracted to disk. Files of a sample need not be adjacent.

    The headers of small files lie all over a shard, so that all of a remote shard is fetched for
    them. If these shards together have at most ``max_kept_bytes``, their bytes stay in memory;
    otherwise the requested samples are fetched again. Forked workers share the bytes, spawned ones
    fetch the samples.

    Values are decoded by the extension of the field: ``jpg``, ``png``, ``webp``, ``tif``, ``bmp``,
    ``ppm``, ``gif`` (arrays, see :mod:`data_stack.codecs.images`), ``npy`` (arrays), ``txt``,
    ``text``, ``transcript`` (str), ``cls``, ``cls2``, ``index``, ``inx``, ``id`` (int), ``json``,
    ``jsn``, ``mp``, ``msg`` (msgpack), ``mp4``, ``webm``, ``flac``, ``wav``. All others are bytes.
    Pickles are never read.

    Threads may share an iterator. Forked and spawned workers open the shards themselves. They get
    the headers of remote shards with the iterator, and read those of local ones again.

    Args:
        shards: one or several shards in order, as arguments of
            :func:`~data_stack.io.location.location_of`: paths, URLs, StreamedResources of any
            store, open binary files, or ``(folder or connector, file)``.
        fields: the fields of a sample besides its key; None for all.
        types: decoders by extension, also instead of the built-in ones: ``{"jpg": None, "depth":
            "npy"}``: a type of record column, a Codec, two functions (encode, decode), or None for
            raw bytes.
        max_kept_bytes: the limit of the remote shards that are kept in memory; 0 keeps none.

    Raises:
        ConfigError: at the first access: no shard has one of ``fields``, or a field is a pickle,
            which could run any code; ``types={"pkl": None}`` returns its bytes.
        DatasetFileCorruptError: at the first access: a shard is not a tar, or damaged. When a
            sample is read: it lacks one of ``fields``, or a file has another format than its
            extension.
        UnsafeArchiveError: at the first access: a shard has links or devices, names outside of it,
            two files of one name, or a file whose field is ``__key__``.
    """

    #: The access refers to the iterator: they would keep each other in memory.
    _keeps_access = False

    #: The files that are left out: in the folder of the shards, if a folder was opened, and in the
    #: shards after their headers were read. A LeftOutWarning named those that may be data.
    account: PlaceAccount | None

    #: The locations of the shards, in order.
    _shards: list[Location]
    #: The fields that a user chose; None for all.
    _fields: tuple[str, ...] | None
    #: Decoders by extension, instead of the built-in ones.
    _types: dict[str, FieldType]
    #: The limit of the remote shards that are kept in memory.
    _max_kept_bytes: int
    #: Whether :attr:`account` has the files in the shards.
    _has_account_of_shards: bool
    #: Where the files lie; None before the first access.
    _index: ShardIndex | None
    #: How many bytes come with a sample if the shards are remote; 0 if they are local; None before
    #: it is known.
    _remote_bytes: float | None
    #: Whether all files to read are kept in memory; None before it is known.
    _are_all_kept: bool | None
    #: The open shards of this process.
    _open_shards: OpenShards
    #: The codec of each field that was looked up.
    _codecs: dict[str, Codec]
    #: The type of images, sound or videos of each field that was looked up; None of other fields.
    _media_types: dict[str, str | None]
    #: The codecs of images, sound and videos.
    _content_codecs: ContentCodecs
    #: Held by the thread that reads the headers of the shards.
    _lock: threading.Lock

    def __init__(
        self,
        shards: Any,
        *,
        fields: Sequence[str] | None = None,
        types: Mapping[str, FieldType] | None = None,
        max_kept_bytes: int = _MAX_KEPT_BYTES,
    ) -> None:
        # A tuple is a folder or connector, and the name of a shard in it.
        is_location = isinstance(shards, (tuple, Location)) or is_path_or_url(shards)
        is_open_file = hasattr(shards, "read")
        sources = [shards] if is_location or is_open_file else shards
        self._shards = [location_of(source) for source in sources]
        if not self._shards:
            raise ConfigError("a WebDataset needs at least one shard")
        if isinstance(fields, str):
            raise ConfigError(
                f"fields must be a list of names such as ['jpg', 'cls'], got {fields!r}"
            )
        self._fields = None if fields is None else tuple(fields)
        self._types = dict(types or {})
        self._max_kept_bytes = max_kept_bytes
        self.account = None
        self._has_account_of_shards = False
        self._start_afresh()

    def _start_afresh(self) -> None:
        """Forget the open shards, in a new iterator or another process."""
        self._index = None
        self._remote_bytes = None
        self._are_all_kept = None
        self._open_shards = OpenShards(self._shards, KeptPieces(self._max_kept_bytes))
        self._codecs = {}
        self._media_types = {}
        self._content_codecs = ContentCodecs()
        self._lock = fork_lock()

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = {name: self.__dict__[name] for name in _PICKLED}
        # The versions of local files hold for this machine alone.
        are_remote = self._index is not None and self.remote_bytes() > 0
        state["_index"] = self._index if are_remote else None
        state["_seen"] = self._open_shards.seen if are_remote else None
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        index = state.pop("_index", None)
        seen = state.pop("_seen", None)
        self.__dict__.update(state)
        self._start_afresh()
        self._index = index
        self._open_shards = OpenShards(self._shards, KeptPieces(self._max_kept_bytes), seen)

    # ------------------------------------------------------------------ what there is

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields to read, in the order of their first files; a sample may lack some of them."""
        if self._fields is not None:
            self._get_index()
            return self._fields
        return tuple(self._get_index().fields)

    @property
    def keys(self) -> Sequence[str]:
        """The keys of all samples, in order."""
        return self._get_index().keys

    def with_fields(
        self, fields: Sequence[str], types: Mapping[str, FieldType]
    ) -> WebDatasetIterator:
        """Return the same samples with other fields and decoders.

        The headers of the shards are not read again.

        Raises:
            ConfigError: a field is a pickle, and ``types`` does not say how to read it.
        """
        other = WebDatasetIterator(
            self._shards, fields=fields, types=types, max_kept_bytes=self._max_kept_bytes
        )
        other._index = self._get_index()
        other._open_shards = OpenShards(
            self._shards, self._open_shards.kept, self._open_shards.seen
        )
        for field in fields:
            other._codec(field)
        return other

    def remote_bytes(self) -> float:
        """Return how many bytes come with a sample, if the shards are read from a remote store.

        It is the average for the fields to read; 0 for local shards, and without samples.
        """
        if self._remote_bytes is None:
            index = self._get_index()
            n_samples = len(index.keys)
            if n_samples and self._open_shards.are_remote:
                n_bytes = index.n_bytes_of(self.fields) * (1 + _SHARE_AROUND_FILES)
                self._remote_bytes = n_bytes / n_samples
            else:
                self._remote_bytes = 0.0
        return self._remote_bytes

    def make_access(self) -> SampleAccess:
        return _ShardsAccess(self)

    def _arguments(self) -> dict[str, Any]:
        return {"fields": self._fields, "types": self._types}

    # ------------------------------------------------------------------ reading samples

    def _read(self, positions: Sequence[int], field: str | None = None) -> list[dict[str, Any]]:
        """Read samples with their keys and fields, those of one shard in one request.

        Args:
            positions: the positions of the samples.
            field: the only field to read, which each sample must have; None for :attr:`fields`.

        Raises:
            DatasetFileCorruptError: a sample lacks a field that a user chose, or a file is damaged.
        """
        samples, files = self._find_files(positions, field)
        for numbers in _group_by_shard(files):
            files_of_shard = [files[number] for number in numbers]
            request = current_request()
            contents = self._read_contents(files_of_shard)
            with decoding_for(request):
                for file, data in zip(files_of_shard, contents, strict=True):
                    file.sample[file.field] = self._decode(file, data)
        return samples

    def _iterate_field(self, positions: Sequence[int], field: str) -> Iterator[Any]:
        """Iterate over the values of a field, each decoded when it is yielded.

        Raises:
            DatasetFileCorruptError: a sample lacks the field, or a file is damaged.
        """
        for start in range(0, len(positions), _FILES_AT_ONCE):
            _, files = self._find_files(positions[start : start + _FILES_AT_ONCE], field)
            contents = [b""] * len(files)
            for numbers in _group_by_shard(files):
                contents_of_shard = self._read_contents([files[number] for number in numbers])
                for number, data in zip(numbers, contents_of_shard, strict=True):
                    contents[number] = data
            for file, data in zip(files, contents, strict=True):
                yield self._decode(file, data)

    def _find_files(
        self, positions: Sequence[int], field: str | None
    ) -> tuple[list[dict[str, Any]], list[_FileToRead]]:
        """Return samples without their values, and the files of these, in order.

        Args and errors are those of :meth:`_read`.
        """
        index = self._get_index()
        fields = self.fields if field is None else (field,)
        are_required = field is not None or self._fields is not None
        samples: list[dict[str, Any]] = []
        files: list[_FileToRead] = []
        for position in positions:
            shard_number = self._shard_of(position)
            ranges = index.ranges_of(position)
            sample: dict[str, Any] = {KEY: index.keys[position]}
            for name in fields:
                if name in ranges:
                    # The entry keeps its place in the sample; its value is read later.
                    sample[name] = None
                    offset, size = ranges[name]
                    files.append(_FileToRead(sample, name, offset, size, shard_number))
                elif are_required:
                    shard = self._shards[shard_number].full_name
                    raise DatasetFileCorruptError(
                        f"sample {index.keys[position]!r} of {shard} has no field {name!r}"
                    )
            samples.append(sample)
        return samples, files

    def _read_contents(self, files: Sequence[_FileToRead]) -> list[bytes]:
        """Read files of one shard in one request."""
        ranges = [(file.offset, file.size) for file in files]
        return self._open_shards.read(files[0].shard_number, ranges)

    def _keeps_all(self) -> bool:
        """Return whether the files of all samples are kept in the memory of this process."""
        if self._are_all_kept is None:
            ranges = self._get_index().ranges_in_shards(range(len(self.keys)), self.fields)
            kept = self._open_shards.kept
            self._are_all_kept = all(
                kept.has_all(number, ranges_of_shard) for number, ranges_of_shard in ranges.items()
            )
        return self._are_all_kept

    def _decode(self, file: _FileToRead, data: bytes) -> Any:
        """Return the value of a file."""
        codec = self._codec_of_file(file.field, data)
        shard = self._shards[file.shard_number].full_name
        name = f"{shard}: {file.sample[KEY]}.{file.field}"
        extension = extension_of_field(file.field)
        hint = f". types={{{extension!r}: None}} returns the bytes"
        return decode_file(codec, data, name, hint)

    def _codec(self, field: str) -> Codec:
        """Return the codec of a field by its extension.

        Raises:
            ConfigError: the field is a pickle, and ``types`` does not say how to read it.
        """
        codec = self._codecs.get(field)
        if codec is None:
            codec = codec_of_field(field, self._types)
            self._codecs[field] = codec
        return codec

    def _codec_of_file(self, field: str, data: bytes) -> Codec:
        """Return the codec of a file.

        The content of an image, sound or video tells its codec, unless ``types`` names one. Other
        files have the codec of their field.
        """
        media_type = self._media_type(field)
        if media_type is None or not data:
            return self._codec(field)
        return self._content_codecs.codec_of(data, media_type)

    def _media_type(self, field: str) -> str | None:
        """Return the type of a field of images, sound or videos by its extension.

        None: the field has other files, or ``types`` names its decoder.
        """
        if field not in self._media_types:
            extension = extension_of_field(field)
            type_name = None
            if extension not in self._types:
                type_name = types_by_extension(*MEDIA_KINDS).get(extension)
            self._media_types[field] = type_name
        return self._media_types[field]

    # ------------------------------------------------------------------ where the files are

    def _shard_of(self, position: int) -> int:
        """Return the number of the shard of a sample."""
        return bisect.bisect_right(self._get_index().starts, position) - 1

    def _get_index(self) -> ShardIndex:
        """Return where the files lie; reads the headers of all shards at the first call."""
        if self._index is None:
            with self._lock:
                # Another thread may have read them while this one waited.
                if self._index is None:
                    self._index = self._read_headers()
        return self._index

    def _read_headers(self) -> ShardIndex:
        """Read the headers of all shards.

        Raises:
            ConfigError, DatasetFileCorruptError, UnsafeArchiveError: as for
                :class:`WebDatasetIterator` at the first access.
        """
        indexer = ShardIndexer()
        numbers = range(len(self._shards))
        n_side_by_side = min(len(self._shards), _SHARDS_AT_ONCE)
        list_files = functools.partial(
            self._open_shards.list_files, max_ahead=_PIECES_AT_ONCE // n_side_by_side
        )
        all_files = waiting.map(list_files, numbers, at_once=_SHARDS_AT_ONCE)
        for shard, files in zip(self._shards, all_files, strict=True):
            indexer.add(shard, files)
        index = indexer.finish()

        fields = index.fields if self._fields is None else self._fields
        for name in fields:
            if name not in index.fields and index.keys:
                raise ConfigError(
                    f"no sample has a field {name!r}{did_you_mean(name, index.fields)}; "
                    f"they have {', '.join(index.fields)}"
                )
            # This raises the error of a pickle now, not when a sample is read.
            self._codec(name)
        self._account_for(len(index.files), indexer.left_out)
        return index

    def _account_for(self, n_read: int, left_out: Sequence[LeftOut]) -> None:
        """Account for the files in the shards, and warn of files that are left out.

        This is done once: a worker process gets the account.

        Args:
            n_read: the number of files that belong to samples.
            left_out: the files that belong to no sample.
        """
        if self._has_account_of_shards:
            return
        self._has_account_of_shards = True
        PlaceAccount(self._shards[0].full_name, n_read, tuple(left_out)).warn()
        account = self.account
        if account is None:
            account = PlaceAccount(self._shards[0].folder.name, len(self._shards))
        self.account = account.with_left_out(left_out)


def _group_by_shard(files: Sequence[_FileToRead]) -> list[list[int]]:
    """Return the numbers of the files of each shard, in the order of their first files."""
    numbers_by_shard: dict[int, list[int]] = {}
    for number, file in enumerate(files):
        numbers_by_shard.setdefault(file.shard_number, []).append(number)
    return list(numbers_by_shard.values())


class _ShardsAccess(FieldsAccess, RemoteAccess):
    """Access to the samples of shards; samples of one shard are read in one request."""

    source: WebDatasetIterator

    @property
    def n_samples(self) -> int:  # type: ignore[override]  # read-only here
        return len(self.source._get_index().keys)

    def sample(self, position: int) -> Sample:
        return self.source._read([position])[0]

    def samples(self, positions: IndexArrayOfInts) -> list[Sample]:
        self.await_prefetched(positions)
        return self.source._read(positions.tolist())

    def iterate(self, start: int, stop: int) -> Iterator[Sample]:
        for first in range(start, stop, _SAMPLES_AT_ONCE):
            positions = range(first, min(first + _SAMPLES_AT_ONCE, stop))
            try:
                samples = self.source._read(positions)
            except RequestLimitError:
                # Each sample may fit alone.
                for position in positions:
                    yield self.sample(position)
            else:
                yield from samples

    def fields(self) -> Sequence[str]:
        return (KEY, *self.source.fields)

    def values(self, field: str, positions: Sequence[int]) -> list[Any]:
        if field == KEY:
            return [self.source.keys[position] for position in positions]
        self.await_prefetched(np.asarray(positions, np.intp))
        return [sample[field] for sample in self.source._read(positions, field)]

    def iterate_column(self, key: ColumnKey, positions: IndexArrayOfInts) -> Iterator[Any] | None:
        if key not in self.source.fields or not self.source._codec(str(key)).releases_gil:
            return None
        self.await_prefetched(positions)
        return self.source._iterate_field(positions.tolist(), str(key))

    def remote_bytes(self) -> float:
        return self.source.remote_bytes()

    @property
    def prefers_blocks(self) -> bool:  # type: ignore[override]  # read-only here
        """Whether samples of a random order are fetched."""
        return super().prefers_blocks and not self.source._keeps_all()

    def fetches(
        self, positions: range, keys: Sequence[ColumnKey] | None = None
    ) -> list[Callable[[], object]]:
        """Return a call for each shard that holds some of the samples."""
        fields = self.source.fields
        if keys is not None:
            fields = tuple(field for field in fields if field in keys)
        ranges = self.source._get_index().ranges_in_shards(positions, fields)
        open_shards = self.source._open_shards
        return [
            functools.partial(open_shards.prefetch, number, ranges_of_shard)
            for number, ranges_of_shard in ranges.items()
        ]

    def locate(self, position: int) -> str:
        shard = self.source._shards[self.source._shard_of(position)]
        return f"{self.source.keys[position]!r} of {shard.full_name}"

    def content_fingerprint(self) -> list[str]:
        numbers = range(len(self.source._shards))
        return contents_of_resources(
            [functools.partial(self.source._open_shards.open_first, number) for number in numbers]
        )
