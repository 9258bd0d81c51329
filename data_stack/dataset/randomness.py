"""Random numbers that are the same wherever and whenever they are drawn: pure functions of a seed and what they are for.

What a 64-bit key draws, numbers and orders of ``range(n)``, is integer arithmetic modulo 2**64, and stays as it is for ever:
shuffled iterators, mixes and the state of a loader rest on it.
"""

from __future__ import annotations

import hashlib
import math
import operator
import sys
from dataclasses import dataclass
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt
from numpy.random.bit_generator import ISpawnableSeedSequence

from data_stack.dataset.positions import ComputedPositions, IndexArrayOfInts, check_integer

Uint64Array = npt.NDArray[np.uint64]
_Each = Uint64Array | np.uint64  # one for each place, or one for all of them

_MASK = 2**64 - 1
_MASK_32 = np.uint64(2**32 - 1)
_1, _27, _30, _31, _32 = (np.uint64(count) for count in (1, 27, 30, 31, 32))

# SplitMix64: Steele, Lea and Flood, Fast splittable pseudorandom number generators (OOPSLA 2014), with the finalizer that Vigna
# publishes at https://prng.di.unimi.it/splitmix64.c
_MIX_1, _MIX_2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_GAMMA_64, _MIX_1_64, _MIX_2_64 = (
    np.uint64(0x9E3779B97F4A7C15),
    np.uint64(_MIX_1),
    np.uint64(_MIX_2),
)


# -------------------------------------------------------------------------------------------------------------- seeds


def derive_seed(*parts: SupportsIndex | str) -> int:
    """64 bits that depend on all ``parts`` and their order, and look random: the start of their SHA-256."""
    texts = [part if isinstance(part, str) else str(operator.index(part)) for part in parts]
    return int.from_bytes(hashlib.sha256("\0".join(texts).encode()).digest()[:8], "little")


def derive_generator(seed: int, index: int = 0) -> np.random.Generator:
    """The generator number ``index`` of a :func:`derive_seed`: Philox, whose streams for different keys are independent.

    It draws what ``Philox(key=(index << 64) | seed)`` draws, and its ``spawn`` depends on ``seed`` and ``index`` alone.

    Source: Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (SC 2011).
    """
    return np.random.Generator(np.random.Philox(_Key(seed, index)))  # type: ignore[arg-type]  # numpy's stubs lack ISeedSequence


class _Key(ISpawnableSeedSequence):
    """A key as numpy takes it from a sequence of seeds: ``Philox(key=...)`` asks the system for entropy first, for 12 µs."""

    _parent: np.random.SeedSequence | None = None

    def __init__(self, seed: int, index: int) -> None:
        self._words = seed, index

    def generate_state(self, n_words: int, dtype: Any = np.uint64) -> Any:
        return np.array(self._words, np.uint64)

    def spawn(self, n_children: int) -> list[np.random.SeedSequence]:
        if self._parent is None:
            self._parent = np.random.SeedSequence(self._words)
        return self._parent.spawn(n_children)


@dataclass(frozen=True, slots=True)
class Draw:
    """What decides the random numbers of a layer.

    Attributes:
        seed: the seed of the layer.
        epoch: the number of the epoch, from 0.
        key: 64 bits that the name of the layer, the seed and the epoch decide.
    """

    seed: int
    epoch: int
    key: int


def check_draw(layer: str, seed: Any, epoch: Any) -> Draw:
    """Check the seed and the epoch of a random layer, and derive the key of its random numbers.

    Args:
        layer: the name of the layer, such as ``"shuffled"``.
        seed: an integer.
        epoch: an integer, at least 0.

    Raises:
        ConfigError: the seed or the epoch is not such an integer.
    """
    checked_seed = check_integer(f"the seed of a {layer} iterator", seed)
    checked_epoch = check_integer(f"the epoch of a {layer} iterator", epoch, at_least=0)
    key = derive_seed(layer, checked_seed, checked_epoch)
    return Draw(checked_seed, checked_epoch, key)


def check_n_drawn(layer: str, n_samples: Any) -> int | None:
    """Check the number of samples that a random layer shall draw; None is the default of the layer.

    Raises:
        ConfigError: the number is not an integer, or negative.
    """
    if n_samples is None:
        return None
    name = f"the n_samples of a {layer} iterator"
    return check_integer(name, n_samples, at_least=0, at_most=sys.maxsize)


# -------------------------------------------------------------------------------------------------------------- numbers


def hash_of(key: int, index: int) -> int:
    """64 bits that ``key`` decides for ``index``: number ``index`` of the SplitMix64 generator that starts at ``key``.

    Args:
        key: in ``[0, 2**64)``.
        index: in ``[0, 2**64)``.
    """
    return int(hash_array(key, np.array([index], dtype=np.uint64))[0])


def hash_array(keys: Uint64Array | int, indices: npt.NDArray[Any]) -> Uint64Array:
    """:func:`hash_of` of many indices, with one key or with a key for each."""
    bits = indices.astype(np.uint64)
    bits += _1
    bits *= _GAMMA_64
    bits = bits + np.asarray(keys, dtype=np.uint64)
    bits ^= bits >> _30
    bits *= _MIX_1_64
    bits ^= bits >> _27
    bits *= _MIX_2_64
    bits ^= bits >> _31
    return bits


def high_product_array(factors: Uint64Array, others: Uint64Array) -> Uint64Array:
    """``factor * other // 2**64``: of 64 random bits and n, a number in ``[0, n)``, each as likely up to n / 2**64.

    Source: Lemire, Fast random integer generation in an interval (ACM TOMACS 2019), without the rejection.

    Args:
        factors: many numbers.
        others: one other factor, or one for each.
    """
    high, low = factors >> _32, factors & _MASK_32
    other_high, other_low = others >> _32, others & _MASK_32
    middle = high * other_low
    carry = ((low * other_low) >> _32) + (middle & _MASK_32) + low * other_high
    product: Uint64Array = high * other_high + (middle >> _32) + (carry >> _32)
    return product


# ------------------------------------------------------------------------------------------------------------- permutations

# Up to this number, positions are sorted by their hashes: all orders are equally likely. A network of such small halves
# mixes too slowly.
_MAX_SORTED = 16

# The number of rounds of a network, by its largest number of positions.
# With halves of b positions, two rounds divide what is left of the
# order that neighbours had by b (seen where all 720 orders of 2 x 3 positions can be followed through the rounds). So what is
# left is at most 2e-5, 6e-8 and 6e-8.
_ROUNDS = ((4096, 16), (1 << 16, 8), (2**63 - 1, 6))

_ROUND_CONSTANTS_64 = hash_array(0, np.arange(16))
_ROUND_CONSTANTS = _ROUND_CONSTANTS_64.tolist()

# Number of positions permuted at once: their temporary arrays stay in the processor's cache, and the C library does not give
# their memory back to the system after each of them, which then has to clear it again.
_CHUNK = 1 << 13

# Largest width of a network whose rounds are tabulated: 1.5 MB of tables.
_MAX_TABULATED = 1 << 13


def permute_array(
    sizes: Uint64Array | int, keys: Uint64Array | int, indices: npt.NDArray[Any]
) -> Uint64Array:
    """Where ``indices`` go in the order of ``range(size)`` that a key decides, shape ``(n,)``.

    Up to 16 positions are sorted by their hashes, so that every order is equally likely. More go through a :class:`Network`.
    The key is mixed with the size, so orders of different sizes are independent.

    Args:
        sizes: positive, less than 2**63; one for all, or one for each index.
        keys: 64 bits; the same.
        indices: each in ``[0, size)``.
    """
    result = indices.astype(np.uint64)
    # below, what is the same for all indices has shape (1,)
    all_sizes, all_keys = (
        np.atleast_1d(np.asarray(sizes, dtype=np.uint64)),
        np.atleast_1d(np.asarray(keys, dtype=np.uint64)),
    )
    if len(all_sizes) == len(all_keys) == 1 and all_sizes[0] > _MAX_SORTED:
        Network(int(all_sizes[0]), int(all_keys[0])).permute(result)
        return result
    for start in range(0, len(result), _CHUNK):
        chunk = slice(start, start + _CHUNK)
        _permute(_part(all_sizes, chunk), _part(all_keys, chunk), result[chunk])
    return result


def _permute(sizes: Uint64Array, keys: Uint64Array, places: Uint64Array) -> None:
    """Replace ``places`` by where they go; sizes of all kinds may be among them."""
    own_keys = hash_array(
        keys, sizes
    )  # so that the orders of different sizes have nothing in common
    smallest, largest = int(sizes.min()), int(sizes.max())
    above = 0
    for most, n_rounds in ((_MAX_SORTED, 0), *_ROUNDS):
        if above < smallest and largest <= most:  # as a rule
            places[:] = _permute_alike(sizes, own_keys, places, n_rounds)
        elif above < largest and smallest <= most:
            which = np.flatnonzero((sizes > np.uint64(above)) & (sizes <= np.uint64(most)))
            places[which] = _permute_alike(
                sizes[which], _part(own_keys, which), places[which], n_rounds
            )
        above = most


def _permute_alike(
    sizes: Uint64Array, own_keys: Uint64Array, places: Uint64Array, n_rounds: int
) -> Uint64Array:
    """Where ``places`` go, in permutations that are all sorted (no rounds) or all networks of that many rounds."""
    if n_rounds == 0:
        return _sort_by_hash(sizes, own_keys, places)
    widths = _ceil_sqrt(sizes)
    heights = (sizes + widths - _1) // widths
    return _walk_inside(places, sizes, widths, heights, own_keys, n_rounds)


def _sort_by_hash(sizes: Uint64Array, own_keys: Uint64Array, places: Uint64Array) -> Uint64Array:
    rows = np.arange(len(places))
    columns = np.arange(_MAX_SORTED, dtype=np.uint64)
    keys = np.broadcast_to(own_keys, places.shape)[:, None]
    hashes = hash_array(keys, columns[None, :])
    # what lies outside of a permutation is sorted to its end, also behind an equal hash
    hashes[columns >= np.broadcast_to(sizes, places.shape)[:, None]] = _MASK
    order = np.argsort(hashes, axis=1, kind="stable")
    return order[rows, places.astype(np.intp)].astype(np.uint64)


class Network:
    """A bijection of ``range(n)``, for n above 16.

    The positions are arranged in a rectangle, as nearly square as it can be, whose rows and columns go through a Feistel
    network of additions: 16 rounds up to 4,096 positions, 8 up to 65,536, 6 above. A position that leaves ``range(n)`` goes
    through it again until it is back. Source: Black and Rogaway, Ciphers with arbitrary finite domains (CT-RSA 2002), the
    generalized Feistel cipher and cycle walking. The round function is a hash of good statistics: this is not a cipher, an
    adversary could find the key.

    Args:
        n: above 16, less than 2**63.
        key: in ``[0, 2**64)``.
    """

    __slots__ = ("_height", "_keys", "_n", "_n_asked", "_own_key", "_tables", "_width")

    def __init__(self, n: int, key: int) -> None:
        self._n = n
        self._width = math.isqrt(n - 1) + 1
        self._height = -(-n // self._width)
        self._own_key = hash_of(key, n)
        n_rounds = next(n_rounds for most, n_rounds in _ROUNDS if n <= most)
        self._keys = [self._own_key ^ constant for constant in _ROUND_CONSTANTS[:n_rounds]]
        self._n_asked, self._tables = 0, list[npt.NDArray[np.intp]]()

    def at(self, index: int) -> int:
        """Where ``index`` goes."""
        width, height = self._width, self._height
        while True:
            row, column = divmod(index, width)
            keys = iter(self._keys)
            for column_key, row_key in zip(keys, keys, strict=True):
                bits = ((row ^ column_key) * _MIX_1) & _MASK
                column += ((((bits ^ (bits >> 32)) * _MIX_2) & _MASK) >> 32) * width >> 32
                if column >= width:
                    column -= width
                bits = ((column ^ row_key) * _MIX_1) & _MASK
                row += ((((bits ^ (bits >> 32)) * _MIX_2) & _MASK) >> 32) * height >> 32
                if row >= height:
                    row -= height
            index = row * width + column
            if index < self._n:
                return index

    def permute(self, places: Uint64Array) -> None:
        """Replace many places by where they go."""
        # each of shape (1,)
        n, width, height, own_key = np.array(
            [self._n, self._width, self._height, self._own_key], np.uint64
        ).reshape(4, 1)
        self._n_asked += len(places)
        if not self._tables and self._width <= min(
            _MAX_TABULATED, self._n_asked // 4
        ):  # else they take longer to make
            self._tables = self._tabulate(width, height)
        for start in range(0, len(places), _CHUNK):
            chunk = places[start : start + _CHUNK]
            chunk[:] = (
                self._look_up(chunk)
                if self._tables
                else _walk_inside(chunk, n, width, height, own_key, len(self._keys))
            )
        while len(outside := np.flatnonzero(places >= n)):
            places[outside] = self._look_up(places[outside])

    def _tabulate(self, width: Uint64Array, height: Uint64Array) -> list[npt.NDArray[np.intp]]:
        """What each round adds, by the other coordinate, and what the rows and columns after them count for.

        No round reduces its sum: the next table repeats itself instead, and the last two reduce both sums.
        """
        rows, columns = (np.arange(int(extent[0]), dtype=np.uint64) for extent in (height, width))
        tables = []
        for number, key in enumerate(self._keys):
            other, extent = (columns, height) if number % 2 else (rows, width)
            tables.append(
                _hash_round(
                    other, np.uint64(key), extent, np.empty_like(other), np.empty_like(other)
                )
            )
        repeats = [1 + (number + 1) // 2 for number in range(len(tables))] + [
            1 + len(tables) // 2
        ] * 2
        return [
            np.tile(table, n).astype(np.intp)
            for table, n in zip([*tables, rows * width, columns], repeats, strict=True)
        ]

    def _look_up(self, places: Uint64Array) -> npt.NDArray[np.intp]:
        """Places once through the tables."""
        *rounds, of_rows, of_columns = self._tables
        rows = (places // np.uint64(self._width)).view(np.int64)
        columns, spare = places.view(np.int64) - rows * self._width, np.empty(len(places), np.intp)
        for number, table in enumerate(
            rounds
        ):  # no index is out of range; without wrap, take() would copy its result
            other, changed = (columns, rows) if number % 2 else (rows, columns)
            changed += table.take(other, out=spare, mode="wrap")
        found: npt.NDArray[np.intp] = of_rows.take(rows)
        found += of_columns.take(columns, out=spare, mode="wrap")
        return found


def _walk_inside(
    places: Uint64Array,
    sizes: Uint64Array,
    widths: Uint64Array,
    heights: Uint64Array,
    own_keys: Uint64Array,
    n_rounds: int,
) -> Uint64Array:
    """Many places through their networks until they are inside of their sizes."""
    places = _walk_array(places, widths, heights, own_keys, n_rounds)
    outside = np.flatnonzero(places >= sizes)
    while len(outside):
        own = _part(own_keys, outside)
        again = _walk_array(
            places[outside], _part(widths, outside), _part(heights, outside), own, n_rounds
        )
        places[outside] = again
        outside = outside[again >= _part(sizes, outside)]
    return places


def _walk_array(
    places: Uint64Array, widths: _Each, heights: _Each, own_keys: _Each, n_rounds: int
) -> Uint64Array:
    """Many places once through their networks; written for few temporary arrays."""
    rows = places // widths
    columns = places - rows * widths
    bits, spare = np.empty_like(places), np.empty_like(places)
    for number in range(n_rounds):
        changed, other, extents = (
            (rows, columns, heights) if number % 2 else (columns, rows, widths)
        )
        _hash_round(other, own_keys ^ _ROUND_CONSTANTS_64[number], extents, bits, spare)
        # Modulo without a division: of x and what x - extent wraps around to, the smaller one lies in [0, extent).
        changed += bits
        np.subtract(changed, extents, out=spare)
        np.minimum(changed, spare, out=changed)
    rows *= widths
    rows += columns
    return rows


def _hash_round(
    other: Uint64Array, keys: _Each, extents: _Each, bits: Uint64Array, spare: Uint64Array
) -> Uint64Array:
    """What a round adds to one coordinate, by the other one, below the extent of the first; into ``bits``."""
    np.bitwise_xor(other, keys, out=bits)
    bits *= _MIX_1_64
    np.right_shift(bits, _32, out=spare)
    bits ^= spare
    bits *= _MIX_2_64
    bits >>= _32
    bits *= extents
    bits >>= _32
    return bits


def _ceil_sqrt(numbers: Uint64Array) -> Uint64Array:
    """The square root of positive numbers below 2**63, rounded up, exactly."""
    below = numbers - _1
    roots = np.sqrt(below.astype(np.float64)).astype(np.uint64)
    roots -= (roots * roots > below).astype(np.uint64)
    roots += ((roots + _1) * (roots + _1) <= below).astype(np.uint64)
    return np.asarray(roots + _1)


def _part(values: Uint64Array, which: slice | npt.NDArray[np.intp]) -> Uint64Array:
    return values if len(values) == 1 else values[which]


class KeyedPermutation(ComputedPositions):
    """All positions of ``range(n)`` once, in an order that a key decides: any of them in constant time, and no array is kept.

    The same ``(n, key)`` has the same order on every machine and in every version, see :func:`permute_array`. Up to 65,536
    positions the order is written out at its first use, in 4 bytes a position, which changes nothing but the speed. It pickles as
    ``(n, key)``.

    Args:
        n: number of positions, less than 2**63.
        key: 64 bits, as :func:`derive_seed` returns them.
    """

    def __init__(self, n: int, key: int) -> None:
        self._n, self._key = int(n), int(key)
        self._network = Network(self._n, self._key) if n > 1 << 16 else None
        self._written: tuple[npt.NDArray[np.int32], Any] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._n, self._key)

    def __len__(self) -> int:
        return self._n

    def at(self, index: int) -> int:
        """The position at ``0 <= index < n``."""
        if self._network is not None:
            return self._network.at(index)
        position: int = (self._written or self._write_out())[1][index]
        return position

    def take(self, indices: IndexArrayOfInts) -> IndexArrayOfInts:
        """The positions at ``indices``, shape ``(n,)``, each index in ``[0, n)``."""
        if self._network is not None:
            places = indices.astype(np.uint64)
            self._network.permute(places)
            return places.view(np.int64)
        return (self._written or self._write_out())[0].take(indices.astype(np.intp, copy=False))

    def _write_out(self) -> tuple[npt.NDArray[np.int32], Any]:
        """The whole order, also as a memoryview, in which a Python int is found in half the time that an array takes."""
        order = permute_array(self._n, self._key, np.arange(self._n)).astype(np.int32)
        order.setflags(write=False)
        self._written = order, memoryview(order)  # type: ignore[arg-type]  # an array is a buffer
        return self._written
