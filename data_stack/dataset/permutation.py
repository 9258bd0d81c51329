"""Orders of ``range(n)`` that a 64-bit key decides, the same for ever."""

from __future__ import annotations

import bisect
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.hashing import MIX_1, MIX_2, Uint64Array, hash_array, hash_of
from data_stack.dataset.positions import ComputedPositions, IndexArrayOfInts

_Positions = npt.NDArray[np.intp]

#: One number for each place, or one for all places.
_OneOrEach = Uint64Array | np.uint64

#: Up to this number, positions are sorted by their hashes, so that all orders are equally likely. A
#: network of such small halves mixes too slowly.
_MAX_SORTED = 16

#: Numbers of positions up to which positions are sorted, or go through a network of 16, 8 or 6
#: rounds. With halves of b positions, two rounds divide what is left of the order that neighbours
#: had by b (seen where all 720 orders of 2 x 3 positions can be followed through the rounds). So
#: what is left is at most 2e-5, 6e-8 and 6e-8.
_SIZE_LIMITS = [_MAX_SORTED, 4096, 1 << 16]
_N_ROUNDS = [0, 16, 8, 6]

_ROUND_CONSTANTS = hash_array(0, np.arange(16))

#: Number of positions that are permuted at once. Their temporary arrays stay in the processor's
#: cache, and the C library does not return their memory to the system after each of them, which
#: would then have to clear it again.
_CHUNK = 1 << 13

#: Largest width of a network whose rounds are tabulated: 1.5 MB of tables.
_MAX_TABULATED_WIDTH = 1 << 13

#: Tables are made once a network was asked for this multiple of its width. Before that, they would
#: take longer to make than they save.
_MIN_ASKED_PER_WIDTH = 4

#: Up to this number of positions, an order is written out at its first use.
_MAX_WRITTEN = 1 << 16

_MASK = 2**64 - 1
_MIX_1_INT = int(MIX_1)
_MIX_2_INT = int(MIX_2)
_ONE = np.uint64(1)
_SHIFT_32 = np.uint64(32)


class KeyedPermutation(ComputedPositions):
    """All positions of ``range(n)`` once, in an order that a key decides.

    Any position is found in constant time, and no array is kept.

    The same ``(n, key)`` has the same order on every machine and in every version, see
    :func:`permute_array`. Up to 65,536 positions the order is written out at its first use, in 4
    bytes a position, which changes nothing but the speed. It pickles as ``(n, key)``.

    Args:
        n: number of positions, less than 2**63.
        key: 64 bits, as :func:`~data_stack.dataset.randomness.derive_seed` returns them.
    """

    _n: int
    _key: int
    #: Computes the order of many positions; None for few positions, which are written out.
    _network: FeistelNetwork | None
    #: The order of few positions; None before its first use.
    _written: _WrittenOrder | None

    def __init__(self, n: int, key: int) -> None:
        self._n = int(n)
        self._key = int(key)
        self._network = FeistelNetwork(self._n, self._key) if n > _MAX_WRITTEN else None
        self._written = None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._n, self._key)

    def __len__(self) -> int:
        return self._n

    def at(self, index: int) -> int:
        """Return the position at ``0 <= index < n``."""
        if self._network is not None:
            return self._network.at(index)
        written = self._written or self._write_out()
        position: int = written.memory[index]
        return position

    def take(self, indices: IndexArrayOfInts) -> IndexArrayOfInts:
        """Return the positions at ``indices``, shape ``(n,)``, each index in ``[0, n)``."""
        if self._network is not None:
            places = indices.astype(np.uint64)
            self._network.permute(places)
            return places.view(np.int64)
        written = self._written or self._write_out()
        return written.positions.take(indices.astype(np.intp, copy=False))

    def _write_out(self) -> _WrittenOrder:
        positions = permute_array(self._n, self._key, np.arange(self._n)).astype(np.int32)
        positions.setflags(write=False)
        memory = memoryview(positions)  # type: ignore[arg-type]  # an array is a buffer
        self._written = _WrittenOrder(positions, memory)
        return self._written


@dataclass(frozen=True, eq=False, slots=True)
class _WrittenOrder:
    """A whole order.

    Attributes:
        positions: the order, int32, read-only.
        memory: the same memory. It returns an int of Python's in half the time that an array
            takes.
    """

    positions: npt.NDArray[np.int32]
    memory: memoryview


def permute_array(
    sizes: Uint64Array | int, keys: Uint64Array | int, indices: npt.NDArray[Any]
) -> Uint64Array:
    """Return where indices go in the order of ``range(size)`` that a key decides.

    Up to 16 positions are sorted by their hashes, so that every order is equally likely. More
    positions go through a :class:`FeistelNetwork`. The key is mixed with the size, so orders of
    different sizes are independent.

    Args:
        sizes: positive, less than 2**63; one for all, or one for each index.
        keys: 64 bits; one for all, or one for each index.
        indices: each in ``[0, size)``.

    Returns:
        The positions, shape ``(n,)``.
    """
    places = indices.astype(np.uint64)
    # What is the same for all indices has shape (1,).
    all_sizes = np.atleast_1d(np.asarray(sizes, dtype=np.uint64))
    all_keys = np.atleast_1d(np.asarray(keys, dtype=np.uint64))
    is_one_order = len(all_sizes) == 1 and len(all_keys) == 1
    if is_one_order and all_sizes[0] > _MAX_SORTED:
        FeistelNetwork(int(all_sizes[0]), int(all_keys[0])).permute(places)
        return places

    for start in range(0, len(places), _CHUNK):
        chunk = slice(start, start + _CHUNK)
        _permute_chunk(_select(all_sizes, chunk), _select(all_keys, chunk), places[chunk])
    return places


def _permute_chunk(sizes: Uint64Array, keys: Uint64Array, places: Uint64Array) -> None:
    """Replace places by where they go; sizes of all kinds may be among them."""
    # So the orders of different sizes have nothing in common.
    own_keys = hash_array(keys, sizes)
    fewest_positions = int(sizes.min())
    most_positions = int(sizes.max())
    n_rounds = _n_rounds(fewest_positions)
    if _n_rounds(most_positions) == n_rounds:  # as a rule
        places[:] = _permute_alike(sizes, own_keys, places, n_rounds)
        return

    kinds = np.searchsorted(np.array(_SIZE_LIMITS, dtype=np.uint64), sizes)
    for kind, n_rounds in enumerate(_N_ROUNDS):
        of_this_kind = np.flatnonzero(kinds == kind)
        if len(of_this_kind):
            places[of_this_kind] = _permute_alike(
                sizes[of_this_kind],
                _select(own_keys, of_this_kind),
                places[of_this_kind],
                n_rounds,
            )


def _n_rounds(size: int) -> int:
    """Return the rounds of the network of so many positions; 0 for positions that are sorted."""
    return _N_ROUNDS[bisect.bisect_left(_SIZE_LIMITS, size)]


def _permute_alike(
    sizes: Uint64Array, own_keys: Uint64Array, places: Uint64Array, n_rounds: int
) -> Uint64Array:
    """Return where places go, in orders whose networks all have the same number of rounds."""
    if n_rounds == 0:
        return _sort_by_hash(sizes, own_keys, places)
    widths = _ceil_sqrt(sizes)
    heights = (sizes + widths - _ONE) // widths
    return _walk_until_inside(places, sizes, widths, heights, own_keys, n_rounds)


def _sort_by_hash(sizes: Uint64Array, own_keys: Uint64Array, places: Uint64Array) -> Uint64Array:
    """Return where places go in orders of at most 16 positions."""
    columns = np.arange(_MAX_SORTED, dtype=np.uint64)
    keys_of_rows = np.broadcast_to(own_keys, places.shape)[:, np.newaxis]
    sizes_of_rows = np.broadcast_to(sizes, places.shape)[:, np.newaxis]
    hashes = hash_array(keys_of_rows, columns[np.newaxis, :])
    # What lies outside of an order is sorted to its end, also behind an equal hash.
    hashes[columns >= sizes_of_rows] = _MASK
    orders = np.argsort(hashes, axis=1, kind="stable")
    rows = np.arange(len(places))
    return orders[rows, places.astype(np.intp)].astype(np.uint64)


# ----------------------------------------------------------------------------------------- network


class FeistelNetwork:
    """A bijection of ``range(n)``, for n above 16.

    The positions are arranged in a rectangle, as nearly square as it can be, whose rows and columns
    go through a Feistel network of additions: 16 rounds up to 4,096 positions, 8 up to 65,536, 6
    above. Even rounds change the column by a hash of the row, odd rounds change the row by a hash
    of the column. A position that leaves ``range(n)`` goes through it again until it is back.

    The round function is a hash of good statistics. This is not a cipher: an adversary could find
    the key.

    Source: Black and Rogaway, Ciphers with arbitrary finite domains (CT-RSA 2002), the generalized
    Feistel cipher and cycle walking.

    Args:
        n: above 16, less than 2**63.
        key: in ``[0, 2**64)``.
    """

    __slots__ = (
        "_height",
        "_key_pairs",
        "_n",
        "_n_asked",
        "_own_key",
        "_round_keys",
        "_tables",
        "_width",
    )

    _n: int
    _width: int
    _height: int
    #: The key, mixed with n.
    _own_key: int
    _round_keys: list[int]
    #: The keys of an even round and of the odd round after it.
    _key_pairs: list[tuple[int, int]]
    #: How many positions were asked for so far.
    _n_asked: int
    #: The rounds as tables, once they are worth it.
    _tables: _RoundTables | None

    def __init__(self, n: int, key: int) -> None:
        self._n = n
        self._width = math.isqrt(n - 1) + 1
        self._height = -(-n // self._width)
        self._own_key = hash_of(key, n)
        constants = _ROUND_CONSTANTS[: _n_rounds(n)].tolist()
        self._round_keys = [self._own_key ^ constant for constant in constants]
        self._key_pairs = list(zip(self._round_keys[::2], self._round_keys[1::2], strict=True))
        self._n_asked = 0
        self._tables = None

    def at(self, index: int) -> int:
        """Return where ``index`` goes."""
        width = self._width
        height = self._height
        while True:
            row, column = divmod(index, width)
            for column_key, row_key in self._key_pairs:
                # As _hash_round(), with integers of Python, which are quicker one by one.
                bits = ((row ^ column_key) * _MIX_1_INT) & _MASK
                column += ((((bits ^ (bits >> 32)) * _MIX_2_INT) & _MASK) >> 32) * width >> 32
                if column >= width:
                    column -= width
                bits = ((column ^ row_key) * _MIX_1_INT) & _MASK
                row += ((((bits ^ (bits >> 32)) * _MIX_2_INT) & _MASK) >> 32) * height >> 32
                if row >= height:
                    row -= height
            index = row * width + column
            if index < self._n:
                return index

    def permute(self, places: Uint64Array) -> None:
        """Replace many places by where they go."""
        self._n_asked += len(places)
        tables = self._tables
        if tables is None and self._is_worth_tabulating():
            tables = self._tables = self._tabulate()
        for start in range(0, len(places), _CHUNK):
            chunk = places[start : start + _CHUNK]
            chunk[:] = self._compute(chunk) if tables is None else tables.look_up(chunk)

        if tables is not None:
            outside = np.flatnonzero(places >= self._n)
            while len(outside):
                places[outside] = tables.look_up(places[outside])
                outside = outside[places[outside] >= self._n]

    def _compute(self, places: Uint64Array) -> Uint64Array:
        n, width, height, own_key = np.array(
            [[self._n], [self._width], [self._height], [self._own_key]], dtype=np.uint64
        )
        return _walk_until_inside(places, n, width, height, own_key, len(self._round_keys))

    def _is_worth_tabulating(self) -> bool:
        is_small = self._width <= _MAX_TABULATED_WIDTH
        return is_small and self._n_asked >= _MIN_ASKED_PER_WIDTH * self._width

    def _tabulate(self) -> _RoundTables:
        rows = np.arange(self._height, dtype=np.uint64)
        columns = np.arange(self._width, dtype=np.uint64)
        rounds = []
        for number, key in enumerate(self._round_keys):
            changes_column = number % 2 == 0
            other = rows if changes_column else columns
            extent = self._width if changes_column else self._height
            added = _hash_round(
                other,
                np.uint64(key),
                np.uint64(extent),
                bits=np.empty_like(other),
                spare=np.empty_like(other),
            )
            # Rounds before have added to the other coordinate, each less than its extent. No round
            # reduces its sum: the table repeats itself instead.
            n_rounds_before = (number + 1) // 2
            rounds.append(_repeat(added, 1 + n_rounds_before))

        n_repeats = 1 + len(rounds) // 2
        return _RoundTables(
            self._width,
            rounds,
            row_starts=_repeat(rows * np.uint64(self._width), n_repeats),
            columns=_repeat(columns, n_repeats),
        )


@dataclass(frozen=True, eq=False, slots=True)
class _RoundTables:
    """The rounds of a network as tables.

    Attributes:
        width: the number of columns.
        rounds: what each round adds, by the other coordinate.
        row_starts: the place where each row begins. The table repeats itself, as rows are not
            reduced.
        columns: the columns, repeated likewise.
    """

    width: int
    rounds: list[_Positions]
    row_starts: _Positions
    columns: _Positions

    def look_up(self, places: Uint64Array) -> _Positions:
        """Return places after the rounds, which may lie outside of the order."""
        rows = (places // np.uint64(self.width)).view(np.int64)
        columns = places.view(np.int64) - rows * self.width
        # No index is out of range. Without mode="wrap", take() would copy its result.
        spare = np.empty(len(places), np.intp)
        for number, table in enumerate(self.rounds):
            if number % 2 == 0:
                columns += table.take(rows, out=spare, mode="wrap")
            else:
                rows += table.take(columns, out=spare, mode="wrap")
        result: _Positions = self.row_starts.take(rows)
        result += self.columns.take(columns, out=spare, mode="wrap")
        return result


def _repeat(table: Uint64Array, n_repeats: int) -> _Positions:
    return np.tile(table, n_repeats).astype(np.intp)


def _walk_until_inside(
    places: Uint64Array,
    sizes: Uint64Array,
    widths: Uint64Array,
    heights: Uint64Array,
    own_keys: Uint64Array,
    n_rounds: int,
) -> Uint64Array:
    """Return many places after their networks, repeatedly until they are inside of their sizes."""
    places = _walk(places, widths, heights, own_keys, n_rounds)
    outside = np.flatnonzero(places >= sizes)
    while len(outside):
        places_again = _walk(
            places[outside],
            _select(widths, outside),
            _select(heights, outside),
            _select(own_keys, outside),
            n_rounds,
        )
        places[outside] = places_again
        outside = outside[places_again >= _select(sizes, outside)]
    return places


def _walk(
    places: Uint64Array,
    widths: _OneOrEach,
    heights: _OneOrEach,
    own_keys: _OneOrEach,
    n_rounds: int,
) -> Uint64Array:
    """Return many places once through their networks; written for few temporary arrays."""
    rows = places // widths
    columns = places - rows * widths
    bits = np.empty_like(places)
    spare = np.empty_like(places)
    for number in range(n_rounds):
        round_keys = own_keys ^ _ROUND_CONSTANTS[number]
        if number % 2 == 0:
            _hash_round(rows, round_keys, widths, bits, spare)
            _add_modulo(columns, bits, widths, spare)
        else:
            _hash_round(columns, round_keys, heights, bits, spare)
            _add_modulo(rows, bits, heights, spare)
    rows *= widths
    rows += columns
    return rows


def _hash_round(
    other: Uint64Array, keys: _OneOrEach, extents: _OneOrEach, bits: Uint64Array, spare: Uint64Array
) -> Uint64Array:
    """Compute what a round adds to a coordinate.

    Args:
        other: the other coordinate.
        keys: the keys of the round.
        extents: the result is below these.
        bits: receives the result.
        spare: is overwritten.

    Returns:
        ``bits``.
    """
    np.bitwise_xor(other, keys, out=bits)
    bits *= MIX_1
    np.right_shift(bits, _SHIFT_32, out=spare)
    bits ^= spare
    bits *= MIX_2
    bits >>= _SHIFT_32
    bits *= extents
    bits >>= _SHIFT_32
    return bits


def _add_modulo(
    coordinates: Uint64Array, added: Uint64Array, extents: _OneOrEach, spare: Uint64Array
) -> None:
    """Add to coordinates, modulo their extents, without a division.

    Of x and what x - extent wraps around to, the smaller one lies in [0, extent).
    """
    coordinates += added
    np.subtract(coordinates, extents, out=spare)
    np.minimum(coordinates, spare, out=coordinates)


def _ceil_sqrt(numbers: Uint64Array) -> Uint64Array:
    """Return the square roots of positive numbers below 2**63, rounded up, exactly."""
    below = numbers - _ONE
    roots = np.sqrt(below.astype(np.float64)).astype(np.uint64)
    # The root of a float may miss by one.
    roots -= (roots * roots > below).astype(np.uint64)
    roots += ((roots + _ONE) * (roots + _ONE) <= below).astype(np.uint64)
    return np.asarray(roots + _ONE)


def _select(values: Uint64Array, which: slice | _Positions) -> Uint64Array:
    """Return some of the values; one value is for all places."""
    return values if len(values) == 1 else values[which]
