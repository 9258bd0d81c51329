"""Samples in one stored resource, as columns: the format of a stored cache, from which any sample is read by range.

The layout, in which every number is little-endian::

    0        8 bytes "DSsample", version (u32), 0 (u32)
    16       pieces: block after block of consecutive samples, and of each block column after column
    …        index: length of the header (u64), the header (JSON, ASCII), then three tables:
                 of each block: number of samples (u64), which structure (u64)
                 of each piece: offset, size (u64), which kind (u64)
                 of each block of 64 KiB from 0 to the index: its digest (8 bytes, :mod:`data_stack.io.integrity`)
    end-40   offset and size of the index (u64), its digest (8 bytes), the digest of these 24 bytes, "DSsample"

The header says what the samples are of (``fingerprint``, ``n_samples``), how samples are put together from columns
(``structures``), and what the pieces hold (``kinds``, see :mod:`data_stack.dataset.iterator.sample_codecs`):

rows
    of one size, without gaps. A piece whose rows have up to 64 KiB begins at a multiple of their size, so that all rows of
    a mapped file are one array.
values
    of different sizes: where each begins after this table, and where the last one ends (u64 each), then the values.

Nothing that is read is run. A block is held against its digest before it is first used, so that damage is an error.
"""

from __future__ import annotations

import itertools
import json
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from data_stack.codecs.plain_data import canonical_json
from data_stack.dataset.iterator.contract import Sample
from data_stack.dataset.iterator.sample_codecs import MALFORMED, RowsCodec, SampleCodec, codec_for, codec_of
from data_stack.dataset.iterator.sample_columns import (
    Rows,
    SampleStructure,
    ValueKind,
    estimated_bytes,
    stacked_rows,
    values_of,
)
from data_stack.dataset.iterator.stacking import Batch, Column, emptied, stack_samples, stack_values, value_of
from data_stack.dataset.iterator.stored_pages import (
    PAGE_BYTES,
    FetchedPages,
    MappedPages,
    Pages,
    PageWriter,
    mapped_resource,
    read_at,
)
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.io.integrity import DIGEST_BYTES, block_digest
from data_stack.io.storage_connectors.connector import StorageConnector

__all__ = ["OtherVersionError", "StoredSamples", "write_samples"]

_MAGIC = b"DSsample"
_VERSION = 2
_HEAD = struct.Struct("<8sII")
_PLACE = struct.Struct("<QQ8s")
_TWO = struct.Struct("<QQ")
_TRAILER_BYTES = _PLACE.size + DIGEST_BYTES + len(_MAGIC)
_BLOCK = np.dtype([("n_samples", "<u8"), ("structure", "<u8")])
_PIECE = np.dtype([("offset", "<u8"), ("size", "<u8"), ("kind", "<u8")])

# A block is what a writer holds in memory, and what a reader of all samples fetches at once.
_BLOCK_BYTES = 1 << 20

_Integers = npt.NDArray[np.int64]


class OtherVersionError(DatasetFileCorruptError):
    """Samples were stored in another version of the format."""


# ---------------------------------------------------------------------- writing


def write_samples(
    file: IO[bytes] | Any, samples: Iterable[Sample], n_samples: int, fingerprint: str, *, most_in_block: int = 1 << 16
) -> None:
    """Write samples to ``file``, from its start, with a block of them in memory at a time.

    Args:
        file: what has ``write``.
        samples: as many as stated.
        n_samples: how many.
        fingerprint: what they are samples of.
        most_in_block: the most samples of a block, which also ends after about 1 MiB.

    Raises:
        ConfigError: a sample has a value that cannot be written, or there are more or fewer samples.
    """
    pages = PageWriter(file)
    pages.write(_HEAD.pack(_MAGIC, _VERSION, 0))
    structures: dict[str, int] = {}
    kinds: dict[str, int] = {}
    blocks: list[tuple[int, int]] = []
    pieces: list[tuple[int, int, int]] = []
    last: dict[tuple[int, int], SampleCodec] = {}
    n_written = 0
    for block in _blocks(samples, most_in_block):
        structure = SampleStructure.of(block[0])
        columns = structure.columns_of(block)
        if columns is None:
            structure, columns = SampleStructure("bare"), [block]
        number = structures.setdefault(canonical_json(_structure_described(structure)), len(structures))
        for column, values in enumerate(columns):
            codec = last[number, column] = codec_for(values, last.get((number, column)))
            where = f"of column {column} of sample" if structure.form != "bare" else "of sample"
            offset, size = _write_piece(pages, codec, values, n_written, where)
            pieces.append((offset, size, kinds.setdefault(canonical_json(codec.to_json()), len(kinds))))
        blocks.append((len(block), number))
        n_written += len(block)
    if n_written != n_samples:
        raise ConfigError(f"the iterator to be stored says that it has {n_samples} samples, and gave {n_written}")
    header = canonical_json(
        {
            "fingerprint": fingerprint,
            "n_samples": n_samples,
            "structures": [json.loads(each) for each in structures],
            "kinds": [json.loads(each) for each in kinds],
            "n_blocks": len(blocks),
            "n_pieces": len(pieces),
        }
    ).encode("ascii")
    tables = np.array(blocks, dtype=_BLOCK).tobytes() + np.array(pieces, dtype=_PIECE).tobytes() + pages.digests()
    index = struct.pack("<Q", len(header)) + header + tables
    place = _PLACE.pack(pages.position, len(index), block_digest(index))
    file.write(index)
    file.write(place + block_digest(place) + _MAGIC)


def _blocks(samples: Iterable[Sample], most_in_block: int) -> Iterator[list[Sample]]:
    """Samples in lists that take about as much memory as a block should."""
    block: list[Sample] = []
    n_bytes = 0
    for sample in samples:
        sample_bytes = estimated_bytes(sample)
        if block and (n_bytes + sample_bytes > _BLOCK_BYTES or len(block) == most_in_block):
            yield block
            block, n_bytes = [], 0
        block.append(sample)
        n_bytes += sample_bytes
    if block:
        yield block


def _structure_described(structure: SampleStructure) -> dict[str, Any]:
    made_by = structure.made_by
    return {
        "form": structure.form,
        "n_columns": structure.n_columns,
        "keys": list(structure.keys),
        "made_by": None if made_by is None else f"{made_by.__module__}.{made_by.__qualname__}",
    }


def _write_piece(pages: PageWriter, codec: SampleCodec, values: Sequence[Any], first: int, where: str) -> tuple[int, int]:
    """Write one column of one block; where it lies, and its size."""
    if isinstance(codec, RowsCodec):
        pages.pad_to(codec.row_bytes if 0 < codec.row_bytes <= PAGE_BYTES else 64)
        data = [codec.encoded(values)]
    else:
        encoded = []
        for number, value in enumerate(values):
            try:
                encoded.append(codec.encode(value))
            except ConfigError as error:
                raise ConfigError(
                    f"the value {where} {first + number} cannot be kept in a store: {error}. Replace it below the cache, "
                    f"e.g. by map(), with numbers, strings, bytes, arrays, or lists, tuples and dicts of such"
                ) from error
        begins = np.zeros(len(values) + 1, dtype="<u8")
        np.cumsum(list(map(len, encoded)), out=begins[1:])
        pages.pad_to(8)
        data = [begins.tobytes(), b"".join(encoded)]
    offset = pages.position
    for part in data:
        pages.write(part)
    return offset, pages.position - offset


# ---------------------------------------------------------------------- reading


class StoredSamples:
    """Samples that :func:`write_samples` wrote into a resource; what is read of it is what is asked for.

    Threads may share it, and a fork may go on with it. It does not pickle.

    Args:
        storage: where the resource is; it stays the caller's.
        identifier: its name.

    Raises:
        ResourceNotFoundError: there is none.
        ConfigError: it is something else.
        OtherVersionError: it was written in another version of the format.
        DatasetFileCorruptError: it is damaged; also raised when a damaged part is first read.
    """

    def __init__(self, storage: StorageConnector, identifier: str) -> None:
        self._name = f"the samples stored as {identifier!r} in {storage!r}"
        with storage.get_resource(identifier) as resource:
            size = resource.size
            head, trailer = read_at(resource, 0, _HEAD.size), read_at(resource, max(0, size - _TRAILER_BYTES), _TRAILER_BYTES)
            if head[: len(_MAGIC)] != _MAGIC:
                raise ConfigError(
                    f"resource {identifier!r} in {storage!r} is no cache of samples, and is not overwritten; "
                    f"give the cache another identifier"
                )
            offset, index_bytes = self._checked_place(head, trailer, size)
            index = read_at(resource, offset, index_bytes)
            if block_digest(index) != _PLACE.unpack_from(trailer)[2]:
                raise self.damaged("its index does not have its digest")
            try:
                digests = self._take_index(index, offset)
            except MALFORMED as error:
                raise self.damaged(f"its index is none of ours ({str(error)[:200]})") from error
            mapped = mapped_resource(resource, size, head, trailer)
        if mapped is not None:
            self._pages: Pages = MappedPages(self.damaged, mapped, offset, digests)
        else:
            self._pages = FetchedPages(self.damaged, storage, identifier, trailer, offset, digests)

    def __len__(self) -> int:
        return self.n_samples

    def damaged(self, what: str) -> DatasetFileCorruptError:
        """The error that says so."""
        return DatasetFileCorruptError(f"{self._name} are damaged: {what}. Delete the resource, and it is written anew")

    # ------------------------------------------------------------------ the index

    def _checked_place(self, head: bytes, trailer: bytes, size: int) -> tuple[int, int]:
        """Where the index is."""
        if len(head) == _HEAD.size and (version := _HEAD.unpack(head)[1]) != _VERSION:
            raise OtherVersionError(f"{self._name} are in version {version} of their format; this is version {_VERSION}")
        if size < _HEAD.size + _TRAILER_BYTES or trailer[-len(_MAGIC) :] != _MAGIC:
            raise self.damaged(f"it ends after {size:,} bytes, before its end")
        place = trailer[: _PLACE.size]
        offset, index_bytes, _ = _PLACE.unpack(place)
        if block_digest(place) != trailer[_PLACE.size : -len(_MAGIC)]:
            raise self.damaged("its last bytes do not have their digest")
        if offset < _HEAD.size or offset + index_bytes != size - _TRAILER_BYTES:
            raise self.damaged(f"it has {size:,} bytes, which are not those that were written")
        return offset, index_bytes

    def _take_index(self, index: bytes, end: int) -> bytes:
        """Read what the index says; the digests of the pages up to ``end``."""
        (header_bytes,) = struct.unpack_from("<Q", index)
        header = json.loads(index[8 : 8 + header_bytes].decode("ascii"))
        self.fingerprint, self.n_samples = str(header["fingerprint"]), int(header["n_samples"])
        self._structures = [_structure_of(each) for each in header["structures"]]
        self._made_by = [each["made_by"] for each in header["structures"]]
        self._codecs = [codec_of(each) for each in header["kinds"]]
        n_blocks, n_pieces, n_pages = int(header["n_blocks"]), int(header["n_pieces"]), -(-end // PAGE_BYTES)
        expected = 8 + header_bytes + n_blocks * _BLOCK.itemsize + n_pieces * _PIECE.itemsize + DIGEST_BYTES * n_pages
        if min(n_blocks, n_pieces) < 0 or len(index) != expected:
            raise ValueError(f"{len(index)} bytes, not {expected}")
        position = 8 + header_bytes
        blocks = np.frombuffer(index, _BLOCK, n_blocks, position)
        pieces = np.frombuffer(index, _PIECE, n_pieces, position + blocks.nbytes)
        lengths = blocks["n_samples"].tolist()
        if sum(lengths) != self.n_samples or self.n_samples >= 2**62 or 0 in lengths:
            raise ValueError(f"blocks of {sum(lengths)} samples, not of {self.n_samples}")
        if n_blocks and int(blocks["structure"].max()) >= len(self._structures):
            raise ValueError("a structure that is not there")
        if n_pieces and int(pieces["kind"].max()) >= len(self._codecs):
            raise ValueError("a kind that is not there")
        self._structure_of_block = blocks["structure"].astype(np.int64)
        n_columns = np.array([each.n_columns for each in self._structures], dtype=np.int64)[self._structure_of_block]
        if int(n_columns.sum()) != n_pieces:
            raise ValueError(f"{n_pieces} pieces of {int(n_columns.sum())} columns")
        self._first_piece = np.cumsum(n_columns) - n_columns
        self._starts = np.concatenate([[0], np.cumsum(blocks["n_samples"].astype(np.int64))]).astype(np.int64)
        if n_pieces and int(pieces["size"].max()) > end:
            raise ValueError("a piece beyond the end")
        if n_pieces and bool((pieces["offset"] > np.uint64(end) - pieces["size"]).any()):
            raise ValueError("a piece beyond the end")
        self._offsets, self._sizes = pieces["offset"].astype(np.int64), pieces["size"].astype(np.int64)
        self._kind_of_piece = pieces["kind"].astype(np.int64)
        self._n_values = np.repeat(np.diff(self._starts), n_columns)
        # lists for single samples: an int of an array takes as long as the search for it
        self._start_list: list[int] = self._starts.tolist()
        self._structure_list: list[int] = self._structure_of_block.tolist()
        self._first_list: list[int] = self._first_piece.tolist()
        self._kind_list: list[int] = self._kind_of_piece.tolist()
        self._offset_list: list[int] = self._offsets.tolist()
        self._check_sizes()
        return index[position + blocks.nbytes + pieces.nbytes :]

    def _check_sizes(self) -> None:
        """Hold the sizes of all pieces against what they hold."""
        row_bytes = np.array([each.row_bytes if isinstance(each, RowsCodec) else -1 for each in self._codecs], dtype=np.int64)
        of_piece = row_bytes[self._kind_of_piece]
        rows, empty, other = of_piece > 0, of_piece == 0, of_piece < 0
        wrong = empty & (self._sizes != 0)
        wrong[rows] = (self._sizes[rows] % of_piece[rows] != 0) | (self._sizes[rows] // of_piece[rows] != self._n_values[rows])
        aligned = rows & (of_piece <= PAGE_BYTES)
        wrong[aligned] |= self._offsets[aligned] % of_piece[aligned] != 0
        wrong[other] = self._sizes[other] // 8 - 1 < self._n_values[other]
        if bool(wrong.any()):
            raise ValueError(f"piece {int(np.flatnonzero(wrong)[0])} is not as large as its values")

    def adopt_classes(self, read: Callable[[int], Sample]) -> bool:
        """Take the classes of named tuples from samples that ``read`` gives at a position; False if they are others."""
        for number, structure in enumerate(self._structures):
            if structure.form == "named":
                block = int(np.flatnonzero(self._structure_of_block == number)[0])
                actual = SampleStructure.of(read(int(self._starts[block])))
                if _structure_described(actual) != {**_structure_described(structure), "made_by": self._made_by[number]}:
                    return False
                self._structures[number] = actual
        return True

    # ------------------------------------------------------------------ samples

    def sample(self, position: int) -> Sample:
        """The sample at an int position in ``[0, len(self))``."""
        block = bisect_right(self._start_list, position) - 1
        structure = self._structures[self._structure_list[block]]
        part = _Part(self._first_list[block], position - self._start_list[block], 1, 0)
        pieces = range(part.first_piece, part.first_piece + structure.n_columns)
        return structure.samples_of([self._values(piece, part) for piece in pieces])[0]

    def samples(self, positions: IndexArrayOfInts) -> list[Sample]:
        """The samples at ``positions``, all of them read together."""
        samples: list[Sample] = [None] * len(positions)
        for structure, slots, blocks in self._by_structure(positions) if samples else ():
            wanted = positions if slots is None else positions[slots]
            columns = self._columns(range(structure.n_columns), wanted, blocks)
            found = structure.samples_of([column.values() for column in columns])
            if slots is None:
                return found
            for slot, sample in zip(slots.tolist(), found, strict=True):
                samples[slot] = sample
        return samples

    def batch(self, positions: IndexArrayOfInts) -> Batch:
        """The samples at ``positions`` as columns."""
        if len(positions) == 0:
            return emptied(self.batch(np.zeros(1, dtype=np.intp))) if self.n_samples else ()
        groups = self._by_structure(positions)
        structure, _, blocks = groups[0]
        if len(groups) > 1:
            return stack_samples(self.samples(positions))
        columns = self._columns(range(structure.n_columns), positions, blocks)
        if structure.form == "bare" and not isinstance(columns[0], _ReadRows):
            return stack_samples(columns[0].values())
        return structure.batch_of([column.stacked() for column in columns])

    def column(self, key: int | str, positions: IndexArrayOfInts | None) -> Column:
        """One column of the samples at ``positions``, of all for None; no other is read."""
        if positions is None:
            positions = np.arange(self.n_samples, dtype=np.intp)
        if len(positions) == 0:
            return self.column(key, np.zeros(1, dtype=np.intp))[:0] if self.n_samples else np.empty(0)
        groups = self._by_structure(positions)
        structure, _, blocks = groups[0]
        number = structure.column_at(key)
        if len(groups) > 1 or number is None:
            return stack_values([value_of(sample, key) for sample in self.samples(positions)])
        return self._columns([number], positions, blocks)[0].stacked()

    def all_samples(self) -> Iterator[Sample]:
        """All samples in order, a block at a time."""
        for start, stop in zip(self._start_list[:-1], self._start_list[1:], strict=True):
            yield from self.samples(np.arange(start, stop, dtype=np.intp))

    # ------------------------------------------------------------------ inside

    def _by_structure(self, positions: IndexArrayOfInts) -> list[tuple[SampleStructure, npt.NDArray[np.intp] | None, _Integers]]:
        """For each structure that is met: the places in ``positions`` (None: all), and the blocks of these."""
        blocks: _Integers = np.searchsorted(self._starts, positions, side="right").astype(np.int64, copy=False) - 1
        numbers = self._structure_of_block[blocks]
        if len(self._structures) == 1 or bool((numbers == numbers[0]).all()):
            return [(self._structures[int(numbers[0])], None, blocks)]
        groups: list[tuple[SampleStructure, npt.NDArray[np.intp] | None, _Integers]] = []
        for number in np.unique(numbers).tolist():
            slots = np.flatnonzero(numbers == number)
            groups.append((self._structures[number], slots, blocks[slots]))
        return groups

    def _columns(self, numbers: Sequence[int], positions: IndexArrayOfInts, blocks: _Integers) -> list[_ReadRows | _ReadValues]:
        """The values of several columns at ``positions``, at least one, all in blocks of one structure."""
        within = positions - self._starts[blocks]
        firsts = self._first_piece[blocks]
        columns: dict[int, _ReadRows | _ReadValues] = {}
        parts: list[_Part] = []
        for number in numbers:
            rows = self._aligned_rows(firsts + number, within)
            if rows is not None:
                columns[number] = rows
        others = [number for number in numbers if number not in columns]
        if others:
            parts = _parts(positions, blocks, within, firsts)
            in_pieces = [(part.first_piece + number, part) for number in others for part in parts]
            self._pages.prefetch(lambda: [self._first_range(piece, part) for piece, part in in_pieces])
            self._pages.prefetch(lambda: [self._begins(piece, part)[1] for piece, part in in_pieces if self._has_values(piece)])
        for number in others:
            columns[number] = self._read([(part.first_piece + number, part) for part in parts], len(positions))
        return [columns[number] for number in numbers]

    def _aligned_rows(self, pieces: _Integers, within: _Integers) -> _ReadRows | None:
        """Rows of one kind that a mapped file has as one array; None if it has none such."""
        kinds = self._kind_of_piece[pieces]
        codec = self._codecs[int(kinds[0])]
        if not isinstance(codec, RowsCodec) or not 0 < codec.row_bytes <= PAGE_BYTES or bool((kinds != kinds[0]).any()):
            return None
        row_bytes = codec.row_bytes
        data = self._pages.rows_at(self._offsets[pieces] // row_bytes + within, row_bytes)
        return None if data is None else _ReadRows(codec.kind, codec.rows(data))

    def _read(self, parts: Sequence[tuple[int, _Part]], n_values: int) -> _ReadRows | _ReadValues:
        """One column: for each part the piece that it is of."""
        kinds = {self._kind_list[piece] for piece, _ in parts}
        codec = self._codecs[next(iter(kinds))]
        if len(kinds) == 1 and isinstance(codec, RowsCodec) and codec.kind.is_fixed:
            data = np.empty((n_values, codec.row_bytes), dtype=np.uint8)
            for piece, part in parts:
                data[part.slot : part.slot + part.n_values] = self._rows(piece, part, codec.row_bytes)
            return _ReadRows(codec.kind, codec.rows(data))
        values: list[Any] = []
        for piece, part in parts:
            values += self._values(piece, part)
        return _ReadValues(values)

    def _rows(self, piece: int, part: _Part, row_bytes: int) -> npt.NDArray[np.uint8]:
        if row_bytes == 0:
            return np.empty((part.n_values, 0), dtype=np.uint8)
        return np.frombuffer(self._pages.buffer(*self._first_range(piece, part)), dtype=np.uint8).reshape(-1, row_bytes)

    def _values(self, piece: int, part: _Part) -> list[Any]:
        codec = self._codecs[self._kind_list[piece]]
        if isinstance(codec, RowsCodec):
            if part.n_values == 1 or not codec.kind.is_fixed:
                return [codec.value(self._pages.buffer(*self._first_range(piece, part)))] * part.n_values
            return values_of(codec.kind, codec.rows(self._rows(piece, part, codec.row_bytes).copy()))
        begins, (offset, size) = self._begins(piece, part)
        data, first = self._pages.buffer(offset, size), begins[0]
        values: list[Any] = []
        decode: Callable[[Any], Any] = codec.decode  # all of these take memory as well as bytes
        try:
            for begin, end in itertools.pairwise(begins):
                values.append(decode(data[begin - first : end - first]))
        except MALFORMED as error:
            where = f"value {part.within + len(values)} of piece {piece}"
            raise self.damaged(f"{where} is no {codec.to_json()['codec']} ({str(error)[:200]})") from error
        return values

    def _first_range(self, piece: int, part: _Part) -> tuple[int, int]:
        """Where the rows of a part are, or where it says where its values are: offset and size."""
        codec, offset = self._codecs[self._kind_list[piece]], self._offset_list[piece]
        if isinstance(codec, RowsCodec):
            return offset + part.within * codec.row_bytes, part.n_values * codec.row_bytes
        return offset + 8 * part.within, 8 * (part.n_values + 1)

    def _has_values(self, piece: int) -> bool:
        return not isinstance(self._codecs[self._kind_list[piece]], RowsCodec)

    def _begins(self, piece: int, part: _Part) -> tuple[Sequence[int], tuple[int, int]]:
        """Where the values of a part begin, the last one ends; and the range of them all in the resource."""
        table = self._pages.buffer(*self._first_range(piece, part))
        begins: Sequence[int] = _TWO.unpack(table) if part.n_values == 1 else np.frombuffer(table, "<u8").tolist()
        table_bytes = 8 * (int(self._n_values[piece]) + 1)
        if begins[-1] > int(self._sizes[piece]) - table_bytes or any(begin > end for begin, end in itertools.pairwise(begins)):
            raise self.damaged(f"values of piece {piece} lie outside of it")
        return begins, (self._offset_list[piece] + table_bytes + begins[0], begins[-1] - begins[0])


class _Part(NamedTuple):
    """Consecutive samples of one block.

    Attributes:
        first_piece: the number of the block's first piece, which is that of column 0.
        within: the first sample's place in the block.
        n_values: how many.
        slot: the first sample's place among what was asked for.
    """

    first_piece: int
    within: int
    n_values: int
    slot: int


def _parts(positions: IndexArrayOfInts, blocks: _Integers, within: _Integers, firsts: _Integers) -> list[_Part]:
    """Positions as runs of consecutive samples."""
    breaks = np.flatnonzero((np.diff(positions) != 1) | (np.diff(blocks) != 0)) + 1
    starts = [0, *breaks.tolist()]
    lengths = np.diff([*starts, len(positions)]).tolist()
    return list(map(_Part, firsts[starts].tolist(), within[starts].tolist(), lengths, starts))


@dataclass(frozen=True)
class _ReadRows:
    """What was read of a column, as rows of one kind."""

    kind: ValueKind
    rows: Rows

    def values(self) -> list[Any]:
        return values_of(self.kind, self.rows)

    def stacked(self) -> Column:
        return stacked_rows(self.kind, self.rows)


@dataclass(frozen=True)
class _ReadValues:
    """What was read of a column, value by value."""

    read: list[Any]

    def values(self) -> list[Any]:
        return self.read

    def stacked(self) -> Column:
        return stack_values(self.read)


def _structure_of(described: Any) -> SampleStructure:
    """The structure that the header describes; of a named tuple without its class.

    Raises:
        ValueError, TypeError, LookupError: it describes none.
    """
    form, n_columns, keys = described["form"], described["n_columns"], tuple(described["keys"])
    expected = {"bare": 1, "dict": len(keys), "named": len(keys), "tuple": n_columns, "list": n_columns}[form]
    if type(n_columns) is not int or n_columns != expected or n_columns < 1:
        raise ValueError(f"samples of {n_columns!r:.40} columns")
    if not all(isinstance(key, str) for key in keys) or len(set(keys)) != len(keys):
        raise ValueError(f"columns {keys!r:.80}")
    return SampleStructure(form, n_columns, keys)
