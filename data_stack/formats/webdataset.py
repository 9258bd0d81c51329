"""WebDataset's shards: tar files in which the files of one sample share a name, with random access.

The file ``a/000017.seg.png`` is field ``seg.png`` of the sample with the key ``a/000017``: a key ends at the first dot of the
last part of the path. What follows the last dot of a field says how its bytes are decoded.

Source: WebDataset 1.0.2, https://github.com/webdataset/webdataset (``tariterators.py``, ``autodecode.py``)
"""

from __future__ import annotations

import bisect
import functools
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Union

import numpy as np
import numpy.typing as npt

from data_stack.codecs.codec import (
    Codec,
    FunctionCodec,
    codec_of,
    codec_of_content,
    decode_file,
    media_types,
    type_of_extension,
)
from data_stack.dataset.iterator import AccessedDatasetIterator, Sample, SampleAccess
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.exception import (
    ArchiveError,
    ConfigError,
    DatasetFileCorruptError,
    RequestLimitError,
    ResourceChangedError,
    UnsafeArchiveError,
)
from data_stack.formats.fields_access import FieldsAccess
from data_stack.formats.records.stored_file import StoredFile
from data_stack.io.account import LeftOut, PlaceAccount, account_of, is_document, is_hidden
from data_stack.io.archives.limits import ArchiveLimits
from data_stack.io.archives.streams import window
from data_stack.io.archives.tar import TarArchive, looks_like_tar
from data_stack.io.content import contents_of_resources
from data_stack.io.folder import Folder
from data_stack.io.location import Location, is_path, location_of
from data_stack.io.resources import StreamedResource
from data_stack.io.stand_ins import HEAD_BYTES, check_no_stand_in
from data_stack.io.versions import SeenVersions
from data_stack.util.forks import fork_lock
from data_stack.util.request_limit import current_request, decoding_for
from data_stack.util.suggestions import did_you_mean
from data_stack.util.untrusted_text import parse_json

#: The field of a sample's key.
KEY: Final = "__key__"
#: The list of the shards, in the form of WebDataset's ``wids``; written last, so that a shard that is missing is noticed.
SHARD_INDEX: Final = "shardindex.json"
#: The rule that leaves out a file in a shard.
_NO_SAMPLE: Final = "a file without a suffix, which belongs to no sample"
#: The rule that leaves a file out of a folder of shards.
_NO_SHARD: Final = "no .tar in the folder itself, or not in shardindex.json"

FieldType = Union[
    str, Codec, tuple[Callable[[Any], bytes] | None, Callable[[bytes], Any] | None], None
]


def _decimal(value: Any) -> bytes:
    """An integer as decimal text, which is what files ``.cls`` hold."""
    return b"%d" % (int(value) if isinstance(value, np.bool_) else operator.index(value))


#: Files of integers as text, which WebDataset reads as int64.
INTEGERS: Final = frozenset(("cls", "cls2", "index", "inx", "id"))
_PICKLES: Final = frozenset(("pyd", "pkl", "pickle"))
PICKLES_AS_BYTES: Final[Mapping[str, None]] = dict.fromkeys(_PICKLES)
_LIMITS: Final = ArchiveLimits(max_bytes=1 << 50, max_members=1 << 27)
#: Number of samples that an iteration reads together.
_SAMPLES_AT_ONCE: Final = 64
_MAX_OPEN: Final = 256
BLOCK_BYTES: Final = 512


def type_of_field(field: str) -> str:
    """The record type of a field by its extension; ``"bytes"`` if it is unknown."""
    ending = field.rpartition(".")[2]
    return "i64" if ending in INTEGERS else type_of_extension(ending) or "bytes"


def account_of_shards(folder: Folder) -> PlaceAccount:
    """The account of a folder of shards; raises as :func:`shard_names`."""
    files, links = folder.survey()
    read = [*shard_names(folder), SHARD_INDEX]
    return account_of(folder.full_name(""), read, files, _NO_SHARD, links)


def shard_names(folder: Folder) -> list[str]:
    """The shards in a folder, in order: as listed in ``shardindex.json``, otherwise all ``.tar`` files by name.

    Raises:
        DatasetFileCorruptError: the list is damaged, or a shard is missing.
    """
    names = [
        name
        for name in folder.list_names()
        if name.lower().endswith(".tar") and not name.startswith(".")
    ]
    if not folder.has_file(SHARD_INDEX):
        return names
    what, data = folder.full_name(SHARD_INDEX), folder.read(SHARD_INDEX)
    try:
        index = parse_json(data)
        listed = [str(shard["url"]) for shard in index["shardlist"]]
    except (ValueError, LookupError, TypeError) as error:
        raise DatasetFileCorruptError(
            f"{what} is damaged: it lists no shards ({str(error)[:200]})"
        ) from error
    missing = sorted({*listed} - {*names})
    if missing:
        raise DatasetFileCorruptError(f"{what} lists {missing[0]!r:.80}, which is missing")
    return listed


# ---------------------------------------------------------------------- reading


@dataclass(frozen=True)
class _Index:
    """The samples and files of the shards.

    Attributes:
        keys: keys of all samples, in the order of their first files.
        starts: index of the first sample of each shard, followed by the number of samples.
        names: all fields, in the order of their first files.
        members: the files, by sample and field: index of the sample and of the field, offset, size; shape ``(n_files, 4)``.
        firsts: the first row of ``members`` of each sample, and the end.
    """

    keys: list[str]
    starts: list[int]
    names: list[str]
    members: npt.NDArray[np.int64]
    firsts: npt.NDArray[np.int64]

    def places(self, position: int) -> dict[str, tuple[int, int]]:
        """Offset and size of the files of a sample, by field."""
        rows = self.members[self.firsts[position] : self.firsts[position + 1]].tolist()
        return {self.names[field]: (offset, size) for _, field, offset, size in rows}


class WebDatasetIterator(AccessedDatasetIterator):
    """Samples of WebDataset shards as dicts: ``__key__``, and one entry for each file of the sample.

    The first access reads the headers of all shards; later only the bytes of the requested samples and fields are read.
    Nothing is extracted to disk. Files of a sample need not be adjacent.

    Values are decoded by the extension of the field: ``jpg``, ``png``, ``webp``, ``tif``, ``bmp``, ``ppm``, ``gif`` (arrays,
    see :mod:`data_stack.codecs.images`), ``npy`` (arrays), ``txt``, ``text``, ``transcript`` (str), ``cls``, ``cls2``, ``index``,
    ``inx``, ``id`` (int), ``json``, ``jsn``, ``mp``, ``msg`` (msgpack), ``mp4``, ``webm``, ``flac``, ``wav``.
    All others are bytes. Pickles are never read.

    Threads may share an iterator; it pickles as its arguments, and forked and spawned workers open the shards themselves.

    Args:
        shards: one or several shards in order, as arguments of :func:`~data_stack.io.location.location_of`: paths, URLs,
            StreamedResources of any store, open binary files, or ``(folder or connector, file)``.
        fields: the fields of a sample besides its key; None for all.
        types: decoders by extension, also instead of the built-in ones: ``{"jpg": None, "depth": "npy"}``: a type of record
            column, a Codec, two functions (encode, decode), or None for raw bytes.

    Raises:
        ConfigError: at the first access: no shard has one of ``fields``, or a field is a pickle, which could run any code;
            ``types={"pkl": None}`` returns its bytes.
        DatasetFileCorruptError: at the first access: a shard is not a tar, or damaged. When a sample is read: it lacks one of
            ``fields``, or a file has another format than its extension.
        UnsafeArchiveError: at the first access: a shard has links or devices, names outside of it, or two files of one name.
    """

    _keeps_access = False

    #: What else is in the folder of the shards, if one was opened, and in the shards, once they were looked
    #: through; LeftOutWarning named what may be data.
    account: PlaceAccount | None

    _index: _Index | None

    def __init__(
        self,
        shards: Any,
        *,
        fields: Sequence[str] | None = None,
        types: Mapping[str, FieldType] | None = None,
    ) -> None:
        is_one = isinstance(shards, (tuple, Location)) or is_path(shards) or hasattr(shards, "read")
        given = [shards] if is_one else list(shards)
        self._shards = [location_of(shard) for shard in given]
        if not self._shards:
            raise ConfigError("a WebDataset needs at least one shard")
        if isinstance(fields, str):
            raise ConfigError(
                f"fields must be a list of names such as ['jpg', 'cls'], got {fields!r}"
            )
        self._fields = None if fields is None else tuple(fields)
        self._types = dict(types or {})
        self.account = None
        self._has_account_of_shards = False
        self._start_afresh()

    # ------------------------------------------------------------------ what there is

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields to read, in the order of their first files; a sample may lack some of them."""
        index = self._get_index()
        return tuple(index.names) if self._fields is None else self._fields

    @property
    def keys(self) -> Sequence[str]:
        """The keys of all samples, in order."""
        return self._get_index().keys

    def with_fields(
        self, fields: Sequence[str], types: Mapping[str, FieldType]
    ) -> WebDatasetIterator:
        """The same samples with other fields and decoders; the shards are not looked through again.

        Raises:
            ConfigError: a field is a pickle, and ``types`` does not say how to read it.
        """
        other = WebDatasetIterator(self._shards, fields=fields, types=types)
        other._index = self._get_index()
        for field in fields:
            other._codec(field)
        return other

    # ------------------------------------------------------------------ samples

    def make_access(self) -> SampleAccess:
        return _ShardsAccess(self)

    def _read(self, positions: Sequence[int], field: str | None = None) -> list[dict[str, Any]]:
        """The samples at ``positions`` with their keys and fields, or with one field, which is then required."""
        index, request = self._get_index(), current_request()
        names, required = (
            (self.fields, self._fields is not None) if field is None else ((field,), True)
        )
        samples: list[dict[str, Any]] = []
        wanted: dict[int, list[tuple[dict[str, Any], str, int, int]]] = {}
        for position in positions:
            number, places = self._shard_of(position), index.places(position)
            chosen = [name for name in names if name in places]
            if required and len(chosen) < len(names):
                missing = next(name for name in names if name not in places)
                where = f"sample {index.keys[position]!r} of {self._shards[number].full_name}"
                raise DatasetFileCorruptError(f"{where} has no field {missing!r}")
            sample: dict[str, Any] = {KEY: index.keys[position], **dict.fromkeys(chosen)}
            samples.append(sample)
            wanted.setdefault(number, []).extend((sample, name, *places[name]) for name in chosen)
        for number, parts in wanted.items():
            spans = np.array(
                [(offset, offset + size) for _, _, offset, size in parts], np.int64
            ).reshape(-1, 2)
            found = self._open(number).read_many(spans[:, 0], spans[:, 1])
            with decoding_for(request):
                for (sample, name, _, _), data in zip(parts, found, strict=True):
                    hint = f". types={{{name.rpartition('.')[2]!r}: None}} returns the bytes"
                    file = f"{self._shards[number].full_name}: {sample[KEY]}.{name}"
                    sample[name] = decode_file(self._codec_of(name, data), data, file, hint)
        return samples

    def _codec_of(self, field: str, data: bytes) -> Codec:
        """The codec of a value: of pictures and recordings that of their content, unless ``types`` names one."""
        extension = field.rpartition(".")[2]
        codec = self._codec(field)
        type_name = type_of_extension(extension)
        if not data or type_name not in media_types() or extension in (self._types or {}):
            return codec
        return codec_of_content(data, type_name)

    # ------------------------------------------------------------------ where things are

    def _shard_of(self, position: int) -> int:
        return bisect.bisect_right(self._get_index().starts, position) - 1

    def _get_index(self) -> _Index:
        if self._index is None:
            with self._lock:
                if self._index is None:
                    self._index = self._look_through()
        return self._index

    def _look_through(self) -> _Index:
        keys: list[str] = []
        starts, fields, tables = [0], dict[str, int](), [np.empty((0, 4), np.int64)]
        left_out: list[LeftOut] = []
        for number, shard in enumerate(self._shards):
            rows: dict[str, int] = {}
            found = []
            for path, offset, size in _members(shard, self._open_first(number), left_out):
                key, field = key_and_field(path)
                row = starts[-1] + rows.setdefault(key, len(rows))
                found.append((row, fields.setdefault(field, len(fields)), offset, size))
            table = np.array(found, np.int64).reshape(-1, 4)
            table = table[np.lexsort((table[:, 1], table[:, 0]))]
            twice = np.flatnonzero((table[1:, :2] == table[:-1, :2]).all(axis=1))
            keys += rows
            if len(twice):
                row, field_number = table[twice[0], :2].tolist()
                raise UnsafeArchiveError(
                    f"{shard.full_name!r} has two files {list(fields)[field_number]!r} of sample {keys[row]!r}"
                )
            tables.append(table)
            starts.append(len(keys))
        for name in fields if self._fields is None else self._fields:
            if name not in fields and keys:
                raise ConfigError(
                    f"no sample has a field {name!r}{did_you_mean(name, fields)}; they have {', '.join(fields)}"
                )
            self._codec(name)
        members = np.concatenate(tables)
        self._account_for(len(members), left_out)
        return _Index(
            keys,
            starts,
            list(fields),
            members,
            np.searchsorted(members[:, 0], np.arange(len(keys) + 1)),
        )

    def _account_for(self, n_read: int, left_out: Sequence[LeftOut]) -> None:
        """Account for the files in the shards, and warn, once: not again in a worker process."""
        if self._has_account_of_shards:
            return
        self._has_account_of_shards = True
        PlaceAccount(self._shards[0].full_name, n_read, tuple(left_out)).warn()
        of_folder = self.account or PlaceAccount(self._shards[0].folder.name, len(self._shards))
        self.account = of_folder.with_left_out(left_out)

    def _open_first(self, number: int) -> StreamedResource:
        """Open a shard that is the one that was read first.

        Raises:
            ResourceChangedError: it was replaced or changed.
        """
        shard = self._shards[number]
        return self._seen.open_first(number, shard.full_name, shard.open())

    def _arguments(self) -> dict[str, Any]:
        return {"fields": self._fields, "types": self._types}

    def _start_afresh(self) -> None:
        shards, types = self._shards, self._types
        self._index, self._lock = None, fork_lock()
        self._codec = functools.cache(lambda field: codec_of_field(field, types))
        seen = self._seen = SeenVersions(len(shards))

        def open_shard(number: int) -> StoredFile:
            shard = shards[number]
            stored = StoredFile(shard.folder, shard.name, None)
            if not seen.is_first(number, stored.version):  # its files lie at other offsets
                before = "another version when its headers were read"
                raise ResourceChangedError(shard.full_name, before, str(stored.version))
            return stored

        self._open = functools.lru_cache(_MAX_OPEN)(open_shard)

    def __getstate__(self) -> dict[str, Any]:
        kept = ("_shards", "_fields", "_types", "account", "_has_account_of_shards")
        return {name: self.__dict__[name] for name in kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start_afresh()


class _ShardsAccess(FieldsAccess):
    """Access to the samples of shards; samples of one shard are read in one request."""

    source: WebDatasetIterator

    n_samples = property(lambda self: len(self.source._get_index().keys))

    def sample(self, position: int) -> Sample:
        return self.source._read([position])[0]

    def samples(self, positions: IndexArrayOfInts) -> list[Sample]:
        return self.source._read(positions.tolist())

    def iterate(self, start: int, stop: int) -> Iterator[Sample]:
        for first in range(start, stop, _SAMPLES_AT_ONCE):
            positions = range(first, min(first + _SAMPLES_AT_ONCE, stop))
            try:
                samples: Iterable[dict[str, Any]] = self.source._read(positions)
            except RequestLimitError:  # each may fit alone
                samples = (self.sample(position) for position in positions)
            yield from samples

    def locate(self, position: int) -> str:
        source = self.source
        return (
            f"{source.keys[position]!r} of {source._shards[source._shard_of(position)].full_name}"
        )

    def content_fingerprint(self) -> list[str]:
        numbers = range(len(self.source._shards))
        return contents_of_resources(
            [functools.partial(self.source._open_first, number) for number in numbers]
        )

    def fields(self) -> Sequence[str]:
        return (KEY, *self.source.fields)

    def values(self, field: str, positions: Sequence[int]) -> list[Any]:
        if field == KEY:
            return [self.source.keys[position] for position in positions]
        return [sample[field] for sample in self.source._read(positions, field)]


def codec_of_field(field: str, types: Mapping[str, FieldType]) -> Codec:
    """The codec of a field.

    Raises:
        ConfigError: the field is a pickle.
    """
    ending = field.rpartition(".")[2]
    if ending in _PICKLES and ending not in types:
        raise ConfigError(
            f"field {field!r} is a pickle, which could run any code; types={{{ending!r}: None}} returns its bytes"
        )
    given: Any = types[ending] if ending in types else type_of_field(ending)
    if given in ("i64", "u64", "int"):  # as decimal text in WebDataset
        return FunctionCodec(_decimal, int)
    return codec_of(given) if isinstance(given, str) else codec_of("given", {"given": given})


def key_and_field(path: str) -> tuple[str, str]:
    """The key of a file's sample, and its field, in lower case as WebDataset has it."""
    folder, _, base = path.rpartition("/")
    stem, _, field = base.partition(".")
    return (f"{folder}/{stem}" if folder else stem), field.lower()


def _members(
    shard: Location, opened: StreamedResource, left_out: list[LeftOut]
) -> Iterator[tuple[str, int, int]]:
    """Path, offset and size of each file of a tar that belongs to a sample.

    Args:
        shard: the tar.
        opened: the same, open; it is closed at the end.
        left_out: files that belong to no sample are added to it.
    """
    name = shard.full_name
    with opened as file:
        head = file.read_at(0, BLOCK_BYTES)
        if len(head) < BLOCK_BYTES or not looks_like_tar(head):
            check_no_stand_in(file.read_at(0, HEAD_BYTES), repr(name), file.size)
            raise DatasetFileCorruptError(
                f"{name!r} is not a tar; decompress it, as a compressed one has no random access"
            )
        archive = TarArchive(name, lambda: window(file, block_bytes=1 << 12), file, _LIMITS)
        try:
            for member in archive:
                if member.offset + member.size > file.size:
                    raise DatasetFileCorruptError(
                        f"{name!r} is cut short: {member.name!r} ends after the file"
                    )
                base = member.name.rpartition("/")[2]
                # As in WebDataset, files without a dot, or with a leading dot, do not belong to a sample.
                if member.is_folder:
                    continue
                if "." in base and not base.startswith("."):
                    yield member.name, member.offset, member.size
                elif not is_hidden(member.name) and not is_document(base):
                    left_out.append(LeftOut(f"{shard.name}, {member.name}", _NO_SAMPLE))
        except UnsafeArchiveError:
            raise
        except ArchiveError as error:
            raise DatasetFileCorruptError(str(error)) from error
