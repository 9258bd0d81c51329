"""Which parts of documents sequences consist of, as a pure function of bounds."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from data_stack.dataset.iterator.layers.sequence_plan import find_pieces


@given(st.lists(st.integers(0, 6), min_size=1, max_size=10), st.integers(1, 5))
def test_pieces_are_the_tokens_of_a_list(lengths: list[int], length: int) -> None:
    tokens = [(number, place) for number, n in enumerate(lengths) for place in range(n)]
    starts = np.arange(0, len(tokens), length)
    stops = np.minimum(starts + length, len(tokens))

    pieces = find_pieces(np.append(0, np.cumsum(lengths)), starts, stops)

    found: list[list[tuple[int, int]]] = [[] for _ in starts]
    for row, document, offset, size in zip(
        pieces.rows, pieces.documents, pieces.offsets, pieces.sizes, strict=True
    ):
        assert size > 0
        found[row] += [(document, place) for place in range(offset, offset + size)]
    assert found == [tokens[start:stop] for start, stop in zip(starts, stops, strict=True)]
