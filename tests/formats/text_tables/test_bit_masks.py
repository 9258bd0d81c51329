"""Masks as bits give what numpy gives for a byte for each byte."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_stack.formats.text_tables.bit_masks import (
    find_set,
    move_to_next,
    pack_mask,
    parity_so_far,
)

_MASKS = st.lists(st.booleans(), max_size=300).map(lambda mask: np.array(mask, np.bool_))


def positions_of(mask: np.ndarray) -> list[int]:
    positions: list[int] = np.flatnonzero(mask).tolist()
    return positions


@given(_MASKS)
def test_packed_bits_are_found(mask: np.ndarray) -> None:
    assert find_set(pack_mask(mask)).tolist() == positions_of(mask)


@given(_MASKS, st.booleans())
def test_parities_are_those_of_running_sums(mask: np.ndarray, is_odd: bool) -> None:
    parities = find_set(parity_so_far(pack_mask(mask), is_odd=is_odd))

    expected = positions_of((np.cumsum(mask) + is_odd) % 2 == 1)
    assert parities[parities < len(mask)].tolist() == expected


@given(_MASKS, st.booleans())
def test_each_bit_moves_to_the_next(mask: np.ndarray, first: bool) -> None:
    moved = find_set(move_to_next(pack_mask(mask), first=first))

    expected = positions_of(np.append(first, mask)[: len(mask)])
    assert moved[moved < len(mask)].tolist() == expected


@pytest.mark.parametrize("position", [0, 63, 64, 127])
def test_a_bit_at_the_edge_of_a_word(position: int) -> None:
    mask = np.arange(128) == position
    words = pack_mask(mask)

    assert find_set(words).tolist() == [position]
    assert find_set(parity_so_far(words, is_odd=False)).tolist() == list(range(position, 128))
    assert find_set(move_to_next(words, first=False)).tolist() == [position + 1][: 127 - position]
