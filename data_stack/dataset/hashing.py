"""Numbers that a 64-bit key draws, by integer arithmetic modulo 2**64.

They must stay as they are for ever: the orders of shuffled iterators and mixes, and the state of a
loader, depend on them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Uint64Array = npt.NDArray[np.uint64]
"""Shape ``(n,)``."""

# SplitMix64: Steele, Lea and Flood, Fast splittable pseudorandom number generators (OOPSLA 2014),
# with the finalizer that Vigna publishes at https://prng.di.unimi.it/splitmix64.c
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
MIX_2 = np.uint64(0x94D049BB133111EB)

_ONE = np.uint64(1)
_SHIFT_27 = np.uint64(27)
_SHIFT_30 = np.uint64(30)
_SHIFT_31 = np.uint64(31)
_SHIFT_32 = np.uint64(32)
_LOW_HALF = np.uint64(2**32 - 1)


def hash_of(key: int, index: int) -> int:
    """Return 64 bits that ``key`` decides for ``index``.

    They are number ``index`` of the SplitMix64 generator that starts at ``key``.

    Args:
        key: in ``[0, 2**64)``.
        index: in ``[0, 2**64)``.
    """
    return int(hash_array(key, np.array([index], dtype=np.uint64))[0])


def draw_below(end: int, key: int) -> int:
    """Draw an integer from ``[0, end)``.

    It is the high half of the product of 64 random bits and ``end``, see
    https://arxiv.org/abs/1805.10941.

    Args:
        end: at least 1.
        key: in ``[0, 2**64)``.
    """
    return (hash_of(key, 0) * end) >> 64


def hash_array(keys: Uint64Array | int, indices: npt.NDArray[Any]) -> Uint64Array:
    """Return :func:`hash_of` for many indices.

    Args:
        keys: one key, or a key for each index.
        indices: integers in ``[0, 2**64)``.
    """
    bits = indices.astype(np.uint64)
    bits += _ONE
    bits *= _GAMMA
    bits = bits + np.asarray(keys, dtype=np.uint64)
    bits ^= bits >> _SHIFT_30
    bits *= MIX_1
    bits ^= bits >> _SHIFT_27
    bits *= MIX_2
    bits ^= bits >> _SHIFT_31
    return bits


def high_product_array(factors: Uint64Array, others: Uint64Array) -> Uint64Array:
    """Return ``factor * other // 2**64`` for each factor.

    If a factor is 64 random bits and the other one is n, this is a random number in ``[0, n)``. The
    probabilities of two numbers differ by at most 2**-64.

    Source: Lemire, Fast random integer generation in an interval (ACM TOMACS 2019), without the
    rejection.

    Args:
        factors: shape ``(n,)``.
        others: the other factors, shape ``(n,)``; shape ``(1,)`` or ``()`` for one for all.
    """
    # The product of numbers of 64 bits is the sum of four products of their halves.
    high = factors >> _SHIFT_32
    low = factors & _LOW_HALF
    other_high = others >> _SHIFT_32
    other_low = others & _LOW_HALF
    middle = high * other_low
    carry = ((low * other_low) >> _SHIFT_32) + (middle & _LOW_HALF) + low * other_high
    product: Uint64Array = high * other_high + (middle >> _SHIFT_32) + (carry >> _SHIFT_32)
    return product
