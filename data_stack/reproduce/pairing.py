"""Pairs the samples of two datasets by their digests."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

#: The number of a sample of the first dataset, and of one of the second. The samples of a dataset
#: are numbered over all of its splits.
Pair: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class DatasetDigests:
    """The digests of the samples of a dataset, by which they are compared.

    Each attribute has one entry for each sample.

    Attributes:
        splits: the number of the split of each sample.
        contents: digests of whole samples.
        inputs: digests of samples without target and tag; None if some samples have no target.
        keys: digests of the column that identifies samples; None without such a column.
    """

    splits: Sequence[int]
    contents: Sequence[bytes]
    inputs: Sequence[bytes] | None
    keys: Sequence[bytes] | None


@dataclass(frozen=True, slots=True)
class SamplePairs:
    """The samples that both datasets have. Each sample is in one pair at most.

    Attributes:
        equal: pairs of equal samples in the same split.
        moved: pairs of equal samples in different splits.
        relabelled: pairs of samples that differ in target and tag only.
        changed: pairs of samples of the same key that differ otherwise.
    """

    equal: list[Pair]
    moved: list[Pair]
    relabelled: list[Pair]
    changed: list[Pair]

    def unpaired_first(self, n_samples: int) -> list[int]:
        """Return the numbers of the samples of the first dataset that are in no pair."""
        paired = {first for first, _ in self._all()}
        return [number for number in range(n_samples) if number not in paired]

    def unpaired_second(self, n_samples: int) -> list[int]:
        """Return the numbers of the samples of the second dataset that are in no pair."""
        paired = {second for _, second in self._all()}
        return [number for number in range(n_samples) if number not in paired]

    def _all(self) -> list[Pair]:
        return self.equal + self.moved + self.relabelled + self.changed


def pair_by_key(first: DatasetDigests, second: DatasetDigests) -> SamplePairs:
    """Pair the samples with equal keys, and sort the pairs by how their samples differ."""
    pairs = SamplePairs(equal=[], moved=[], relabelled=[], changed=[])
    matcher = _Matcher(len(first.contents), len(second.contents))
    for pair in matcher.match(first.keys or (), second.keys or ()):
        number, other_number = pair
        if first.contents[number] == second.contents[other_number]:
            if first.splits[number] == second.splits[other_number]:
                pairs.equal.append(pair)
            else:
                pairs.moved.append(pair)
        elif _have_equal_inputs(first, number, second, other_number):
            pairs.relabelled.append(pair)
        else:
            pairs.changed.append(pair)
    return pairs


def pair_by_content(first: DatasetDigests, second: DatasetDigests) -> SamplePairs:
    """Pair the samples without a key, in three passes over those that are in no pair yet.

    First equal samples in the same split are paired, then equal samples in different splits, then
    samples that are equal but for target and tag.
    """
    matcher = _Matcher(len(first.contents), len(second.contents))
    equal = matcher.match(
        list(zip(first.splits, first.contents, strict=True)),
        list(zip(second.splits, second.contents, strict=True)),
    )
    moved = matcher.match(first.contents, second.contents)
    relabelled = []
    if first.inputs is not None and second.inputs is not None:
        relabelled = matcher.match(first.inputs, second.inputs)
    return SamplePairs(equal, moved, relabelled, changed=[])


def _have_equal_inputs(
    first: DatasetDigests, number: int, second: DatasetDigests, other_number: int
) -> bool:
    """Return whether two samples are equal but for target and tag."""
    if first.inputs is None or second.inputs is None:
        return False
    return first.inputs[number] == second.inputs[other_number]


class _Matcher:
    """Pairs samples with equal values, in passes; each sample is in one pair at most.

    Args:
        n_first: number of samples of the first dataset.
        n_second: number of samples of the second dataset.
    """

    #: Numbers of the samples of the first dataset that are in no pair yet, in order.
    _unpaired_first: list[int]

    #: Numbers of the samples of the second dataset that are in no pair yet, in order.
    _unpaired_second: list[int]

    def __init__(self, n_first: int, n_second: int) -> None:
        self._unpaired_first = list(range(n_first))
        self._unpaired_second = list(range(n_second))

    def match(
        self, first_values: Sequence[Hashable], second_values: Sequence[Hashable]
    ) -> list[Pair]:
        """Pair the unpaired samples that have equal values, the earliest with the earliest.

        Args:
            first_values: a value for each sample of the first dataset.
            second_values: a value for each sample of the second dataset.

        Returns:
            The new pairs, in the order of the first dataset.
        """
        candidates_by_value: defaultdict[Hashable, deque[int]] = defaultdict(deque)
        for number in self._unpaired_second:
            candidates_by_value[second_values[number]].append(number)

        pairs = []
        for number in self._unpaired_first:
            candidates = candidates_by_value.get(first_values[number])
            if candidates:
                pairs.append((number, candidates.popleft()))

        self._unpaired_first = _without(self._unpaired_first, (first for first, _ in pairs))
        self._unpaired_second = _without(self._unpaired_second, (second for _, second in pairs))
        return pairs


def _without(numbers: Iterable[int], paired_numbers: Iterable[int]) -> list[int]:
    paired = set(paired_numbers)
    return [number for number in numbers if number not in paired]
