"""Samples of two datasets are paired by their digests alone."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from data_stack.reproduce.pairing import (
    DatasetDigests,
    SamplePairs,
    pair_by_content,
    pair_by_key,
)


def digests(
    *samples: tuple[int, bytes], inputs: list[bytes] | None = None, keys: list[bytes] | None = None
) -> DatasetDigests:
    """Digests of samples that are given by the number of their split and their content."""
    return DatasetDigests(
        splits=[split for split, _ in samples],
        contents=[content for _, content in samples],
        inputs=inputs,
        keys=keys,
    )


def test_equal_samples_pair_within_their_split_first() -> None:
    first = digests((0, b"a"), (1, b"a"))
    second = digests((1, b"a"), (0, b"a"))

    pairs = pair_by_content(first, second)

    assert pairs == SamplePairs(equal=[(0, 1), (1, 0)], moved=[], relabelled=[], changed=[])


def test_an_equal_sample_of_another_split_has_moved() -> None:
    first = digests((0, b"a"), (0, b"b"))
    second = digests((1, b"a"), (0, b"c"))

    pairs = pair_by_content(first, second)

    assert pairs == SamplePairs(equal=[], moved=[(0, 0)], relabelled=[], changed=[])
    assert pairs.unpaired_first(2) == [1]
    assert pairs.unpaired_second(2) == [1]


def test_only_unpaired_samples_are_relabelled() -> None:
    first = digests((0, b"a1"), (0, b"a2"), inputs=[b"a", b"a"])
    second = digests((0, b"a2"), (0, b"a3"), inputs=[b"a", b"a"])

    pairs = pair_by_content(first, second)

    assert pairs == SamplePairs(equal=[(1, 0)], moved=[], relabelled=[(0, 1)], changed=[])


def test_without_targets_nothing_is_relabelled() -> None:
    first = digests((0, b"a1"), inputs=[b"a"])
    second = digests((0, b"a2"), inputs=None)

    assert pair_by_content(first, second).relabelled == []


def test_samples_of_one_key_are_told_apart_by_what_differs() -> None:
    keys = [b"0", b"1", b"2", b"3"]
    first = digests((0, b"a"), (0, b"b"), (0, b"c1"), (0, b"d1"), inputs=[b"a", b"b", b"c", b"d"])
    second = digests((0, b"a"), (1, b"b"), (0, b"c2"), (0, b"e1"), inputs=[b"a", b"b", b"c", b"e"])
    first = DatasetDigests(first.splits, first.contents, first.inputs, keys)
    second = DatasetDigests(second.splits, second.contents, second.inputs, keys)

    pairs = pair_by_key(first, second)

    assert pairs.equal == [(0, 0)]
    assert pairs.moved == [(1, 1)]
    assert pairs.relabelled == [(2, 2)]
    assert pairs.changed == [(3, 3)]


SAMPLES = st.lists(st.tuples(st.integers(0, 1), st.sampled_from([b"a", b"b", b"c"])), max_size=8)


@given(SAMPLES, SAMPLES)
def test_as_many_samples_are_paired_as_both_have(
    first: list[tuple[int, bytes]], second: list[tuple[int, bytes]]
) -> None:
    pairs = pair_by_content(digests(*first), digests(*second))

    n_common = (Counter(c for _, c in first) & Counter(c for _, c in second)).total()
    n_common_in_splits = (Counter(first) & Counter(second)).total()
    assert len(pairs.equal) == n_common_in_splits
    assert len(pairs.equal) + len(pairs.moved) == n_common
    assert len(pairs.unpaired_first(len(first))) == len(first) - n_common
    assert len(pairs.unpaired_second(len(second))) == len(second) - n_common
