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

#: A number for each place: shape ``(n,)``, or ``(1,)`` or ``()`` if all places have the same one.
_NumberOfPlaces = Uint64Array | np.uint64

#: Up to this number, positions are sorted by their hashes, so that all orders are equally likely. A
#: network of such small halves mixes too slowly.
_MAX_SORTED = 16

#: Up to 16 positions are sorted, up to 4,096 go through a network of 16 rounds, up to 65,536
#: through one of 8 rounds, and more through one of 6 rounds.
#:
#: In a rectangle of b rows, two rounds divide by b how much neighbours stay together. (This was
#: seen where all 720 orders of 2 x 3 positions can be followed through the rounds.) So the smallest
#: network of 16 rounds leaves at most 2e-5 of it, and those of 8 and 6 rounds at most 6e-8.
_SIZE_LIMITS = [_MAX_SORTED, 4096, 1 << 16]
_ROUNDS_BY_SIZE = [0, 16, 8, 6]

#: Combined with the key of a network, these make the keys of its rounds.
_ROUND_CONSTANTS = hash_array(0, np.arange(16))

#: Number of positions that are permuted at once. Their temporary arrays stay in the processor's
#: cache, and the C library does not return their memory to the system after each of them, which
#: would then have to clear it again.
_CHUNK = 1 << 13

#: Largest width of a network whose rounds are tabulated: 1.5 MB of tables.
_MAX_TABULATED_WIDTH = 1 << 13

#: Tables are made once a network has permuted this number of positions for each of its columns.
#: Before that, tables would take longer to make than they save.
_MIN_PERMUTED_PER_COLUMN = 4

#: Up to this number of positions, an order is kept as an array.
_MAX_KEPT = 1 << 16

_MASK = 2**64 - 1
_MIX_1_INT = int(MIX_1)
_MIX_2_INT = int(MIX_2)
_ONE = np.uint64(1)
_SHIFT_32 = np.uint64(32)


class KeyedPermutation(ComputedPositions):
    """All positions of ``range(n)`` once, in an order that a key decides.

    Any position is computed in constant time. Above 65,536 positions no array is kept; up to that
    number, the order is computed at its first use and kept, in 4 bytes a position.

    The same ``(n, key)`` has the same order on every machine and in every version, see
    :func:`permute_array`. It pickles as ``(n, key)``.

    Args:
        n: number of positions, less than 2**63.
        key: 64 bits, as :func:`~data_stack.dataset.randomness.derive_seed` returns them.
    """

    _n: int
    _key: int
    #: Computes the order of many positions; None for few positions, whose order is kept.
    _network: FeistelNetwork | None
    #: The order of few positions; None before its first use, and of many positions.
    _kept_order: _KeptOrder | None

    def __init__(self, n: int, key: int) -> None:
        self._n = int(n)
        self._key = int(key)
        self._network = None
        if n > _MAX_KEPT:
            self._network = FeistelNetwork(self._n, self._key)
        self._kept_order = None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._n, self._key)

    def __len__(self) -> int:
        return self._n

    def at(self, index: int) -> int:
        """Return the position at ``0 <= index < n``."""
        if self._network is not None:
            return self._network.at(index)
        order = self._kept_order or self._keep_order()
        position: int = order.memory[index]
        return position

    def take(self, indices: IndexArrayOfInts) -> IndexArrayOfInts:
        """Return the positions at ``indices``, shape ``(n,)``, each index in ``[0, n)``."""
        if self._network is not None:
            places = indices.astype(np.uint64)
            self._network.permute(places)
            return places.view(np.int64)
        order = self._kept_order or self._keep_order()
        positions = order.positions.take(indices.astype(np.intp, copy=False))
        # numpy would convert int32 again for each column that it gathers.
        return positions.astype(np.intp)

    def _keep_order(self) -> _KeptOrder:
        """Compute the whole order, and keep it."""
        if self._n <= _MAX_SORTED:
            places = permute_array(self._n, self._key, np.arange(self._n))
            positions = places.astype(np.int32)
        else:
            # Chunk by chunk, so that temporary arrays of the whole order need no fresh memory from
            # the system. This takes a quarter of the time less.
            network = FeistelNetwork(self._n, self._key)
            positions = np.empty(self._n, dtype=np.int32)
            for start in range(0, self._n, _CHUNK):
                stop = min(start + _CHUNK, self._n)
                places = np.arange(start, stop, dtype=np.uint64)
                network.permute(places)
                positions[start:stop] = places
        positions.setflags(write=False)
        memory = memoryview(positions)  # type: ignore[arg-type]  # an array is a buffer
        self._kept_order = _KeptOrder(positions, memory)
        return self._kept_order


@dataclass(frozen=True, eq=False, slots=True)
class _KeptOrder:
    """A whole order in memory.

    Attributes:
        positions: the order, int32, read-only.
        memory: the same numbers. A memoryview returns one as an int in half the time that an
            array takes.
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
    """Replace places by where they go; their orders may need different numbers of rounds."""
    # Mixed with the size, one key makes independent orders of different sizes.
    own_keys = hash_array(keys, sizes)
    fewest_rounds = _count_rounds(int(sizes.max()))
    most_rounds = _count_rounds(int(sizes.min()))
    if fewest_rounds == most_rounds:  # nearly always
        places[:] = _permute_in_rounds(sizes, own_keys, places, fewest_rounds)
        return

    classes_of_size = np.searchsorted(np.array(_SIZE_LIMITS, dtype=np.uint64), sizes)
    rounds_of_places = np.array(_ROUNDS_BY_SIZE)[classes_of_size]
    for n_rounds in _ROUNDS_BY_SIZE:
        chosen = np.flatnonzero(rounds_of_places == n_rounds)
        if len(chosen):
            places[chosen] = _permute_in_rounds(
                sizes[chosen], _select(own_keys, chosen), places[chosen], n_rounds
            )


def _count_rounds(size: int) -> int:
    """Return how many rounds a network of ``size`` positions has; 0 if the positions are sorted."""
    return _ROUNDS_BY_SIZE[bisect.bisect_left(_SIZE_LIMITS, size)]


def _permute_in_rounds(
    sizes: Uint64Array, own_keys: Uint64Array, places: Uint64Array, n_rounds: int
) -> Uint64Array:
    """Return where places go, in orders that all need this number of rounds."""
    if n_rounds == 0:
        return _sort_by_hash(sizes, own_keys, places)
    # The rectangles of the networks, see FeistelNetwork.
    widths = _ceil_sqrt(sizes)
    heights = (sizes + widths - _ONE) // widths
    return _walk_until_inside(places, sizes, widths, heights, own_keys, n_rounds)


def _sort_by_hash(sizes: Uint64Array, own_keys: Uint64Array, places: Uint64Array) -> Uint64Array:
    """Return where places go in orders of at most 16 positions."""
    columns = np.arange(_MAX_SORTED, dtype=np.uint64)
    keys_of_rows = np.broadcast_to(own_keys, places.shape)[:, np.newaxis]
    sizes_of_rows = np.broadcast_to(sizes, places.shape)[:, np.newaxis]
    hashes = hash_array(keys_of_rows, columns[np.newaxis, :])
    # Columns outside of an order come last. The sort is stable, so they do even if a column of the
    # order has this largest hash, too.
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
        "_n_permuted",
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
    #: The key of each round.
    _round_keys: list[int]
    #: The keys of each even round and of the odd round after it.
    _key_pairs: list[tuple[int, int]]
    #: How many positions were permuted before there were tables.
    _n_permuted: int
    #: The rounds as tables; None before they are worth their making.
    _tables: _RoundTables | None

    def __init__(self, n: int, key: int) -> None:
        self._n = n
        self._width = math.isqrt(n - 1) + 1
        self._height = -(-n // self._width)
        self._own_key = hash_of(key, n)
        constants = _ROUND_CONSTANTS[: _count_rounds(n)].tolist()
        self._round_keys = [self._own_key ^ constant for constant in constants]
        self._key_pairs = list(zip(self._round_keys[::2], self._round_keys[1::2], strict=True))
        self._n_permuted = 0
        self._tables = None

    def at(self, index: int) -> int:
        """Return where ``index`` goes."""
        tables = self._tables or self._tables_if_worthwhile(1)
        if tables is None:
            return self._compute(index)
        place = tables.look_up_one(index)
        while place >= self._n:
            place = tables.look_up_one(place)
        return place

    def _compute(self, index: int) -> int:
        """Return where ``index`` goes, without tables."""
        width = self._width
        height = self._height
        while True:
            row, column = divmod(index, width)
            for column_key, row_key in self._key_pairs:
                # An even round, then an odd one, as _walk() makes them with arrays. Integers of
                # Python are faster for a single position.
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
        tables = self._tables or self._tables_if_worthwhile(len(places))
        if tables is None:
            self._permute_by_rounds(places)
        else:
            self._permute_by_tables(places, tables)

    def _permute_by_rounds(self, places: Uint64Array) -> None:
        n = np.array([self._n], dtype=np.uint64)
        width = np.array([self._width], dtype=np.uint64)
        height = np.array([self._height], dtype=np.uint64)
        own_key = np.array([self._own_key], dtype=np.uint64)
        n_rounds = len(self._round_keys)
        for start in range(0, len(places), _CHUNK):
            chunk = places[start : start + _CHUNK]
            chunk[:] = _walk_until_inside(chunk, n, width, height, own_key, n_rounds)

    def _permute_by_tables(self, places: Uint64Array, tables: _RoundTables) -> None:
        for start in range(0, len(places), _CHUNK):
            chunk = places[start : start + _CHUNK]
            chunk[:] = tables.look_up(chunk)

        # Those that have left the order go through the network again.
        outside = np.flatnonzero(places >= self._n)
        while len(outside):
            places[outside] = tables.look_up(places[outside])
            outside = outside[places[outside] >= self._n]

    def _tables_if_worthwhile(self, n_places: int) -> _RoundTables | None:
        """Count places to permute, and make the tables if they save more time than they take.

        Returns:
            The tables; None if they are not worthwhile yet.
        """
        # Threads need no lock: a lost addition only delays the tables, and all make the same ones.
        self._n_permuted += n_places
        is_small = self._width <= _MAX_TABULATED_WIDTH
        if is_small and self._n_permuted >= _MIN_PERMUTED_PER_COLUMN * self._width:
            self._tables = self._tabulate()
        return self._tables

    def _tabulate(self) -> _RoundTables:
        """Return for each round a table of what it adds, by the coordinate that it reads."""
        rows = np.arange(self._height, dtype=np.uint64)
        columns = np.arange(self._width, dtype=np.uint64)
        rounds = []
        for number, key in enumerate(self._round_keys):
            changes_column = number % 2 == 0
            coordinates = rows if changes_column else columns
            extent = self._width if changes_column else self._height
            added = _hash_round(
                coordinates,
                np.uint64(key),
                np.uint64(extent),
                bits=np.empty_like(coordinates),
                spare=np.empty_like(coordinates),
            )
            # The rounds before have added to the coordinate that this round reads, each less than
            # its extent. The sum is not reduced modulo the extent: the table repeats itself.
            n_rounds_before = (number + 1) // 2
            rounds.append(_repeat(added, 1 + n_rounds_before))

        n_repeats = 1 + len(rounds) // 2
        return _RoundTables(
            self._width,
            rounds,
            row_starts=_repeat(rows * np.uint64(self._width), n_repeats),
            columns=_repeat(columns, n_repeats),
            round_pairs=[
                (even.data, odd.data) for even, odd in zip(rounds[::2], rounds[1::2], strict=True)
            ],
        )


@dataclass(frozen=True, eq=False, slots=True)
class _RoundTables:
    """The rounds of a network as tables.

    Attributes:
        width: the number of columns.
        rounds: what each round adds to one coordinate, by the other coordinate.
        row_starts: the place where each row begins. The table repeats itself, as rows are not
            reduced modulo the number of rows.
        columns: the columns, repeated as the starts of rows are.
        round_pairs: each even round with the odd round after it. A memoryview returns a number in
            half the time that an array takes.
    """

    width: int
    rounds: list[_Positions]
    row_starts: _Positions
    columns: _Positions
    round_pairs: list[tuple[memoryview, memoryview]]

    def look_up_one(self, place: int) -> int:
        """Return a place after the rounds, which may lie outside of the order."""
        row, column = divmod(place, self.width)
        for column_round, row_round in self.round_pairs:
            column += column_round[row]
            row += row_round[column]
        return self.row_starts.item(row) + self.columns.item(column)

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
    """Return where places go.

    A place goes through its network, again if the result lies outside of its size.
    """
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
    widths: _NumberOfPlaces,
    heights: _NumberOfPlaces,
    own_keys: _NumberOfPlaces,
    n_rounds: int,
) -> Uint64Array:
    """Return where one pass through their networks brings places.

    It makes few temporary arrays, which take most of the time.
    """
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
    other: Uint64Array,
    keys: _NumberOfPlaces,
    extents: _NumberOfPlaces,
    bits: Uint64Array,
    spare: Uint64Array,
) -> Uint64Array:
    """Compute what a round adds to a coordinate.

    Args:
        other: the other coordinate, which the round reads.
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
    coordinates: Uint64Array, added: Uint64Array, extents: _NumberOfPlaces, spare: Uint64Array
) -> None:
    """Add to coordinates, modulo their extents, without a division.

    Args:
        coordinates: each below its extent; receives the result.
        added: each below its extent.
        extents: the moduli.
        spare: is overwritten.
    """
    coordinates += added
    # A sum is less than twice its extent. If it is below its extent, the difference is negative and
    # wraps around to a large number; so the smaller of the two is the sum modulo the extent.
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
    """Return the values of some places; a single value is that of all places."""
    return values if len(values) == 1 else values[which]
