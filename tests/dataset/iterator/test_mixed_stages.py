"""Mixes whose proportions change, whose sources have names, and leave after their epochs."""

from __future__ import annotations

import json
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from layer_laws import as_plain

from data_stack import from_recipe
from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.dataset.iterator.layers.mixed import MixedDatasetIterator
from data_stack.exception import ConfigError
from data_stack.loader import Loader


def sources_of(lengths: list[int]) -> list[Any]:
    """Samples are ``(number of the source, position)``."""
    return [
        SequenceDatasetIterator([np.full(length, number), np.arange(length)])
        for number, length in enumerate(lengths)
    ]


def mix(lengths: list[int], proportions: Any = None, **options: Any) -> MixedDatasetIterator:
    options.setdefault("seed", 1)
    return MixedDatasetIterator(sources_of(lengths), proportions, **options)


def samples_of(iterator: Any) -> list[tuple[int, int]]:
    numbers, positions = iterator.read_column(0), iterator.read_column(1)
    return list(zip(numbers.tolist(), positions.tolist(), strict=True))


def check_passes(samples: list[tuple[int, int]], lengths: list[int]) -> None:
    """Each source is read whole before a sample comes again."""
    for number, length in enumerate(lengths):
        positions = [position for source, position in samples if source == number]
        for start in range(0, len(positions), length):
            in_pass = positions[start : start + length]
            assert len(set(in_pass)) == len(in_pass)


STAGES = st.lists(
    st.tuples(st.integers(1, 60), st.lists(st.integers(1, 9), min_size=3, max_size=3)),
    min_size=1,
    max_size=4,
)


@given(
    lengths=st.lists(st.integers(1, 12), min_size=3, max_size=3),
    stages=STAGES,
    seed=st.integers(0, 99),
)
def test_proportions_hold_in_each_stage_and_passes_go_on(
    lengths: list[int], stages: list[tuple[int, list[int]]], seed: int
) -> None:
    schedule = []
    start = 0
    for n_in_stage, proportions in stages:
        schedule.append((start, proportions))
        start += n_in_stage

    samples = samples_of(mix(lengths, schedule=schedule, n_samples=start, seed=seed))

    assert len(samples) == start
    check_passes(samples, lengths)
    first = 0
    for n_in_stage, proportions in stages:
        shares = [Fraction(number, sum(proportions)) for number in proportions]
        block_size = -(-1 // min(shares))
        counts = [0, 0, 0]
        for n_so_far, (number, _) in enumerate(samples[first : first + n_in_stage], 1):
            counts[number] += 1
            most = 1 if n_so_far % block_size == 0 else block_size
            for count, share in zip(counts, shares, strict=True):
                assert abs(count - n_so_far * share) <= most
        first += n_in_stage


@given(
    lengths=st.lists(st.integers(1, 12), min_size=3, max_size=3),
    epochs=st.lists(st.integers(1, 3), min_size=3, max_size=3),
    proportions=st.lists(st.integers(1, 9), min_size=3, max_size=3),
    seed=st.integers(0, 99),
)
def test_sources_that_leave_do_not_change_the_ratio(
    lengths: list[int], epochs: list[int], proportions: list[int], seed: int
) -> None:
    names = ["a", "b", "c"]
    max_epochs = dict(zip(names, epochs, strict=True))

    samples = samples_of(mix(lengths, proportions, names=names, max_epochs=max_epochs, seed=seed))

    counts = Counter(number for number, _ in samples)
    for number, length in enumerate(lengths):
        assert counts[number] == length * epochs[number]
    check_passes(samples, lengths)
    last_places = [
        max(place for place, (source, _) in enumerate(samples) if source == number)
        for number in range(3)
    ]
    first_to_leave, second, last = sorted(range(3), key=lambda number: last_places[number])
    between = samples[last_places[first_to_leave] + 1 : last_places[second] + 1]
    n_second = sum(1 for source, _ in between if source == second)
    share = Fraction(proportions[second], proportions[second] + proportions[last])
    block_size = -(-1 // min(share, 1 - share))
    # One part of a block before the first source is found to be exhausted, and one after it.
    assert abs(n_second - len(between) * share) <= 2 * block_size + sum(proportions)


def test_a_source_without_turns_needs_no_epochs() -> None:
    lengths, names = [5, 7, 3], ["a", "b", "unused"]
    limited = {"a": 1, "b": 2}

    mixed = mix(lengths, [1, 2, 0], names=names, max_epochs=limited)

    whole = mix(lengths, [1, 2, 0], names=names, max_epochs={**limited, "unused": 1})
    assert samples_of(mixed) == samples_of(whole)
    assert Counter(number for number, _ in samples_of(mixed)) == {0: 5, 1: 14}
    again = MixedDatasetIterator(sources_of(lengths), **as_plain(mixed._made_with))
    assert samples_of(again) == samples_of(mixed)


def test_the_epochs_of_a_source_without_turns_change_nothing() -> None:
    lengths, names = [5, 7, 3], ["a", "b", "unused"]

    mixed = mix(lengths, [1, 2, 0], names=names, max_epochs={"unused": 2})

    assert samples_of(mixed) == samples_of(mix(lengths, [1, 2, 0], names=names))


def test_a_source_with_turns_in_a_later_stage_needs_epochs() -> None:
    schedule = [(0, [1, 0]), (3, [1, 1])]

    with pytest.raises(ConfigError, match="pass n_samples="):
        mix([5, 7], schedule=schedule, names=["a", "b"], max_epochs={"a": 1})


def test_a_schedule_that_changes_nothing_goes_through_the_same_sources() -> None:
    plain = samples_of(mix([5, 7], [1, 2], n_samples=30))
    staged = samples_of(mix([5, 7], [1, 2], n_samples=30, schedule=[(12, [1, 2])]))

    assert staged[:12] == plain[:12]
    for number in (0, 1):
        assert [s for s in staged if s[0] == number] == [s for s in plain if s[0] == number]


def test_orders_of_stages_never_change() -> None:
    mixed = mix([3, 4], [1, 1], schedule=[(4, [3, 1])], n_samples=12, names=["a", "b"])

    first_stage = [(1, 2), (0, 2), (0, 0), (1, 1)]
    second_stage = [(0, 1), (0, 0), (1, 0), (0, 1), (0, 2), (1, 3), (0, 2), (0, 1)]
    assert samples_of(mixed) == first_stage + second_stage


def test_temperature_makes_proportions_of_sizes() -> None:
    lengths = [100, 10_000]

    def count(temperature: float) -> list[int]:
        mixed = mix(lengths, temperature=temperature, n_samples=1010, seed=0)
        return np.bincount(mixed.read_column(0), minlength=2).tolist()  # type: ignore[no-any-return]

    assert count(1) == [10, 1000]
    assert count(2) == pytest.approx([1010 / 11, 1010 - 1010 / 11], abs=1)
    assert count(1e9) == pytest.approx([505, 505], abs=1)


def test_a_named_source_keeps_its_order_where_others_are_added() -> None:
    a, b = sources_of([6, 6])
    two = a.mix(b, names=["a", "b"], proportions={"a": 1, "b": 1}, seed=3)
    three = b.mix(b, a, names=["c", "b", "a"], proportions=[1, 1, 1], seed=3)

    assert [s for s in samples_of(two) if s[0] == 0] == [s for s in samples_of(three) if s[0] == 0]


def test_recipes_and_fingerprints_carry_the_stages() -> None:
    a, b = sources_of([6, 6])

    def make(**changes: Any) -> Any:
        how: dict[str, Any] = {
            "names": ["a", "b"],
            "proportions": {"b": 1, "a": 3},
            "schedule": [(8, {"b": 1})],
            "max_epochs": {"a": 2, "b": 4},
            "seed": 5,
        }
        return a.mix(b, **{**how, **changes})

    mixed = make()
    assert make().fingerprint() == mixed.fingerprint()
    assert make(proportions=[3, 1]).fingerprint() == mixed.fingerprint()
    for changes in (
        {"schedule": [(9, {"b": 1})]},
        {"schedule": [(8, [1, 1])]},
        {"max_epochs": {"a": 2, "b": 5}},
        {"names": ["a", "c"], "proportions": [3, 1], "schedule": [(8, [0, 1])], "max_epochs": 3},
    ):
        assert make(**changes).fingerprint() != mixed.fingerprint()
    assert "schedule" in json.dumps(as_plain(mixed.recipe()), default=str)
    assert samples_of(mixed.at_epoch(2).at_epoch(0)) == samples_of(mixed)
    assert sorted(samples_of(mixed.at_epoch(1))) == sorted(samples_of(mixed))
    assert samples_of(mixed.at_epoch(1)) != samples_of(mixed)


def test_a_loader_resumes_in_a_later_stage_on_other_ranks() -> None:
    mixed = mix([40, 70], [1, 1], schedule=[(50, [1, 5])], n_samples=120)
    whole = samples_of(mixed)
    with Loader(mixed, 3, shard=(0, 2), workers=0) as loader:
        batches = iter(loader)
        for _ in range(10):
            next(batches)
        state = loader.state_dict()

    later: list[tuple[int, int]] = []
    loaders = [Loader(mixed, 5, shard=(rank, 4), workers=0) for rank in range(4)]
    for loader in loaders:
        loader.load_state_dict(state)
    for step in zip(*loaders, strict=True):
        for numbers, positions in step:
            later += zip(numbers.tolist(), positions.tolist(), strict=True)

    assert Counter(later) == Counter(whole[60:])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs proportions=, temperature=, or a schedule="),
        ({"schedule": [(3, [1, 1])]}, "needs proportions=, temperature=, or a schedule="),
        ({"proportions": [1, 1], "temperature": 2}, "begins after the one before"),
        ({"proportions": [1, 1], "schedule": [(0, [1, 1])]}, r"samples \[0, 0\]"),
        ({"proportions": [1, 1], "schedule": [(5, [1, 1]), (5, [1, 2])]}, r"samples \[0, 5, 5\]"),
        ({"proportions": [1, 1], "schedule": [7]}, "schedule= is a list of pairs"),
        ({"proportions": [1, 1], "schedule": 7}, "schedule= is a list of pairs"),
        ({"proportions": [1, 1], "schedule": [(-1, [1, 1])]}, "must be at least 0"),
        ({"proportions": [1, 1], "schedule": [(4, [1])]}, "2 finite numbers"),
        (
            {"proportions": [1, 1], "schedule": [(40, [1, 1])]},
            "ends after 12 samples.*at sample 40",
        ),
        ({"proportions": {"a": 1}}, r"proportions by name needs names="),
        ({"proportions": {"x": 1}, "names": ["a", "b"]}, "the source 'x'.*'a', 'b'"),
        ({"proportions": [1, 1], "names": ["a"]}, "names must be 2 different texts"),
        ({"proportions": [1, 1], "names": ["a", "a"]}, "names must be 2 different texts"),
        ({"proportions": [1, 1], "names": "ab"}, "names must be 2 different texts"),
        ({"temperature": 0}, "temperature must be a positive number"),
        ({"temperature": "warm"}, "temperature must be a positive number"),
        ({"temperature": True}, "temperature must be a positive number"),
        ({"proportions": [True, False]}, "proportions are a list of numbers"),
        ({"proportions": [1, 1], "max_epochs": 0}, "max_epochs must be at least 1"),
        ({"proportions": [1, 1], "max_epochs": {"a": 1}}, "max_epochs by name needs names="),
        (
            {"proportions": [1, 1], "max_epochs": {"a": 1}, "names": ["a", "b"]},
            "which some have not",
        ),
        (
            {"proportions": [1, 1], "max_epochs": 2, "n_samples": 99},
            "after 26 samples, before n_samples=99",
        ),
    ],
)
def test_arguments_that_do_not_fit_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        mix([6, 7], **options)


# ---------------------------------------------------------------------- after other mixes

NAMES = ["a", "b"]


@given(
    lengths=st.lists(st.integers(1, 12), min_size=2, max_size=2),
    n_before=st.integers(0, 30),
    n_after=st.integers(0, 30),
    proportions=st.lists(
        st.lists(st.integers(1, 9), min_size=2, max_size=2), min_size=2, max_size=2
    ),
)
def test_a_mix_goes_on_where_another_one_ended(
    lengths: list[int], n_before: int, n_after: int, proportions: list[list[int]]
) -> None:
    old = mix(lengths, proportions[0], n_samples=50, names=NAMES)
    consumed = old.count_consumed(n_before)
    new = mix(lengths, proportions[1], n_samples=n_after, names=NAMES, consumed=consumed)

    samples = samples_of(old[:n_before]) + samples_of(new)

    whole = mix(lengths, [1, 1], n_samples=200, names=NAMES)
    for number in range(2):
        read = [sample for sample in samples if sample[0] == number]
        assert read == [sample for sample in samples_of(whole) if sample[0] == number][: len(read)]
    assert new.count_consumed(n_after) == {
        name: sum(1 for sample in samples if sample[0] == number)
        for number, name in enumerate(NAMES)
    }


def test_consumed_samples_stand_in_the_recipe_of_their_epoch() -> None:
    plain = mix([6, 7], [1, 1], names=NAMES, n_samples=10)
    none = mix([6, 7], [1, 1], names=NAMES, n_samples=10, consumed={"a": 0})
    some = mix([6, 7], [1, 1], names=NAMES, n_samples=10, consumed={"a": 2})

    assert none.fingerprint() == plain.fingerprint()
    assert some.fingerprint() != plain.fingerprint()
    rebuilt = from_recipe(json.loads(json.dumps(some.recipe())))
    assert samples_of(rebuilt) == samples_of(some)
    assert samples_of(some.at_epoch(1)) == samples_of(plain.at_epoch(1))
    assert samples_of(some) != samples_of(plain)


def test_a_mix_without_length_ends_with_the_pass_it_continues() -> None:
    for n_consumed, n_left in [(0, 6), (2, 4), (7, 5), (11, 1)]:
        mixed = mix([6], [1], names=["a"], consumed={"a": n_consumed})
        assert len(mixed) == n_left


def test_passes_of_the_mixes_before_count_as_epochs() -> None:
    mixed = mix([6, 6], [1, 1], names=NAMES, max_epochs=2, consumed={"a": 9, "b": 12})

    assert [number for number, _ in samples_of(mixed)] == [0, 0, 0]


def test_a_pass_and_a_stage_may_end_together() -> None:
    """Otherwise it would go on without the source, in other proportions."""
    with pytest.raises(ConfigError, match="ends after 8 samples, before the stage at sample 8"):
        mix([4, 100], [1, 1], schedule=[(8, [1, 1])])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"consumed": {"a": 1}, "names": None}, "consumed by name needs names="),
        ({"consumed": {"x": 1}}, "consumed names the source 'x'"),
        ({"consumed": {"a": -1}}, "consumed must be at least 0"),
        ({"consumed": {"a": 1.5}}, "consumed must be an integer"),
        ({"consumed": {"a": 2**63}}, "consumed must be"),
        ({"consumed": [1, 2]}, "consumed is a mapping of names"),
        ({"consumed": {"a": 6}}, "the mixes before it had all of 'a'"),
        ({"consumed": {"a": 6, "b": 7}, "max_epochs": 1}, "had all of 'a', 'b'"),
        ({"consumed": {"a": 6}, "n_samples": 12, "max_epochs": 1}, "before n_samples=12"),
    ],
)
def test_wrong_numbers_of_consumed_samples_are_refused(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        mix([6, 7], [1, 1], **{"names": NAMES, **options})


def test_samples_of_an_empty_source_cannot_have_been_consumed() -> None:
    with pytest.raises(ConfigError, match="consumed has 3 samples of 'b', which is empty"):
        mix([6, 0], [1, 0], names=NAMES, consumed={"b": 3})


def test_counting_past_the_end_of_a_mix_is_refused() -> None:
    mixed = mix([6, 7], [1, 1], names=NAMES)

    with pytest.raises(ConfigError, match="the position in a mix must be"):
        mixed.count_consumed(len(mixed) + 1)
