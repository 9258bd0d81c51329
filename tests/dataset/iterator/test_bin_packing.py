"""Which pieces share a sequence, against programs that place one piece after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_stack.dataset.iterator.layers.bin_packing import fit_best, fit_first

CAPACITY = 12
LENGTHS = st.lists(st.integers(1, CAPACITY), max_size=40)
MAX_PIECES = st.sampled_from([None, 1, 2, 3, 7])


def place_one_by_one(
    lengths: list[int], max_pieces: int | None, *, best: bool, n_open: int = 10**9
) -> list[list[int]]:
    """The lengths in each sequence, in the order in which they were placed."""
    sequences: list[list[int]] = []
    for length in lengths:
        with_room = [
            sequence
            for sequence in sequences[-n_open:]
            if sum(sequence) + length <= CAPACITY
            and (max_pieces is None or len(sequence) < max_pieces)
        ]
        if not with_room:
            sequences.append([length])
        elif best:
            max(with_room, key=sum).append(length)
        else:
            with_room[0].append(length)
    return sequences


def as_arrays(lengths: list[int]) -> Any:
    return np.array(lengths, dtype=np.int32)


def contents(lengths: list[int], numbers: Any) -> list[list[int]]:
    sequences: list[list[int]] = [[] for _ in range(max(numbers, default=-1) + 1)]
    for length, number in zip(lengths, numbers, strict=True):
        sequences[number].append(length)
    return sequences


@given(lengths=LENGTHS)
def test_best_fit_places_pieces_as_one_by_one(lengths: list[int]) -> None:
    numbers = fit_best(as_arrays(lengths), CAPACITY).tolist()

    expected = place_one_by_one(sorted(lengths, reverse=True), None, best=True)
    # Which of two equally full sequences is chosen makes no difference to how full they become.
    assert sorted(map(sum, contents(lengths, numbers))) == sorted(map(sum, expected))


@given(lengths=LENGTHS, max_pieces=MAX_PIECES)
def test_limited_best_fit_needs_no_more_sequences(
    lengths: list[int], max_pieces: int | None
) -> None:
    numbers = fit_best(as_arrays(lengths), CAPACITY, max_pieces).tolist()

    sequences = contents(lengths, numbers)
    assert all(0 < sum(sequence) <= CAPACITY for sequence in sequences)
    assert all(max_pieces is None or len(sequence) <= max_pieces for sequence in sequences)
    one_by_one = place_one_by_one(sorted(lengths, reverse=True), max_pieces, best=True)
    assert len(sequences) <= len(one_by_one)


@given(lengths=LENGTHS, max_pieces=MAX_PIECES, n_open=st.sampled_from([1, 2, 1000]))
def test_first_fit_places_pieces_as_one_by_one(
    lengths: list[int], max_pieces: int | None, n_open: int
) -> None:
    numbers = fit_first(as_arrays(lengths), CAPACITY, max_pieces, max_open=n_open).tolist()

    expected = place_one_by_one(lengths, max_pieces, best=False, n_open=n_open)
    assert contents(lengths, numbers) == expected


def test_few_documents_in_a_sequence_are_long_and_short_ones() -> None:
    # Best fit alone puts two long ones together, and leaves 8 sequences of two short ones.
    lengths = [6] * 16 + [1] * 16

    numbers = fit_best(as_arrays(lengths), CAPACITY, 2).tolist()

    assert len(contents(lengths, numbers)) == 16


@pytest.mark.parametrize("fit", [fit_best, fit_first])
@pytest.mark.parametrize("max_pieces", [None, 3])
def test_no_pieces_need_no_sequences(fit: Any, max_pieces: int | None) -> None:
    assert fit(as_arrays([]), CAPACITY, max_pieces).tolist() == []
