"""Loaders with a budget: what samples cost, samples that are too long, states, workers, trainers."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import data_stack
from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.exception import ConfigError, LoaderStateError
from data_stack.io.storage_connectors.memory import InMemoryStorageConnector
from data_stack.loader import BlockShuffled, Budget, Lanes, Loader, Padded
from data_stack.loader.budgets.costs import read_costs
from data_stack.loader.budgets.cutting import arrange_batches
from data_stack.loader.budgets.stored_costs import format_costs, parse_costs

COSTS = np.random.default_rng(0).integers(1, 40, 300)


def texts(costs: Any = COSTS) -> SequenceDatasetIterator:
    """Samples of tokens, their number, and the number of the sample."""
    tokens = [np.full(cost, cost, np.int32) for cost in costs]
    return SequenceDatasetIterator([tokens, np.asarray(costs), np.arange(len(costs))])


def loader_of(samples: Any = None, **options: Any) -> Loader:
    if samples is None:
        samples = texts()
    chosen = {"budget": 100, "cost": 1, "shuffle": True, "seed": 7, "shard": (0, 1)}
    return Loader(samples, worker_kind="inline", **{**chosen, **options})


def samples_in(loader: Any) -> list[list[int]]:
    return [batch[2].tolist() for batch in loader]


def in_one_list(batches: list[list[int]]) -> list[int]:
    return [sample for batch in batches for sample in batch]


# ---------------------------------------------------------------------- what samples cost


def length_of_tokens(sample: Any) -> int:
    return len(sample[0])


@pytest.mark.parametrize(
    "cost", [0, 1, length_of_tokens, COSTS, COSTS.tolist(), COSTS.astype("u8")]
)
def test_all_ways_to_state_costs_make_the_same_batches(cost: Any) -> None:
    expected = samples_in(loader_of(cost=1))

    batches = samples_in(loader_of(cost=cost))

    assert batches == expected


@pytest.mark.parametrize(
    "column",
    [
        [[1, 2], [], [3]],
        [("a", "b"), (), ("c",)],
        [np.zeros((2, 5)), np.zeros((0, 5)), np.zeros((1, 5))],
        [["two", "words"], [], ["one"]],
    ],
)
def test_columns_of_sequences_cost_their_lengths(column: Any) -> None:
    costs = read_costs(SequenceDatasetIterator([column]), 0)

    assert costs.tolist() == [2, 0, 1]


def test_rows_of_one_array_cost_their_length() -> None:
    costs = read_costs(SequenceDatasetIterator([np.zeros((3, 7, 2))]), 0)

    assert costs.tolist() == [7, 7, 7]


def test_columns_are_found_by_their_names(tmp_path: Path) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_text('{"text": "a b", "n_tokens": 2}\n{"text": "a b c", "n_tokens": 3}\n')

    samples = data_stack.load(path)
    batches = list(Loader(samples, budget=4, cost="n_tokens", shard=(0, 1)))

    assert [len(batch["n_tokens"]) for batch in batches] == [1, 1]
    with pytest.raises(ConfigError, match=r"no column 'tokens'"):
        Loader(samples, budget=4, cost="tokens")
    with pytest.raises(ConfigError, match=r"(?s)'text' of sample 0 .*is text"):
        Loader(samples, budget=4, cost="text")


@pytest.mark.parametrize(
    ("cost", "message"),
    [
        ([1, 2], "2 integers, but the iterator has 3 samples"),
        ([1, -2, 3], "the cost of sample 1 is -2; valid range"),
        ([1, 2, 2**41], "the cost of sample 2 is 2199023255552; valid range"),
        ([1.0, 2.0, 3.0], "one integer for each sample, got an array of float64"),
        ([1.0, float("nan"), 3.0], "round seconds to integers"),
        ([[1], [2, 3], [4]], "one integer for each sample"),
        ([True, False, True], "got an array of bool"),
        (5, "sample"),
        (lambda sample: 1.5, r"must return an integer, got 1.5 for sample 0"),
        (lambda sample: None, r"must return an integer, got None for sample 0"),
        (lambda sample: -1, r"the cost of sample 0 is -1"),
        (lambda sample: sample[9], r"failed for sample 0: IndexError"),
    ],
)
def test_wrong_costs_are_refused(cost: Any, message: str) -> None:
    with pytest.raises((ConfigError, IndexError), match=message):
        loader_of(texts([1, 2, 3]), cost=cost)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([1, -2, 3], "the cost of sample 1 is -2"),
        ([1.5, 2.5, 3.5], "is 1.5, and costs are integers: pass a function"),
        ([1.0, float("nan"), 3.0], "costs are integers"),
        ([1, None, 3], "column 0 of sample 1 is no cost: expected an integer.* got None"),
        ([1, [2], 3], "column 0 has numbers and arrays"),
        (["a", "b", "c"], "is text, whose number of characters"),
        ([b"a", b"b", b"c"], "is text"),
        ([True, False, True], "is no cost"),
        ([{"a": 1}, {"a": 2}, {"a": 3}], "is no cost"),
    ],
)
def test_columns_without_costs_are_refused(column: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Loader(SequenceDatasetIterator([column, [1, 2, 3]]), budget=9, cost=0)


def test_numbers_after_many_arrays_are_refused() -> None:
    column = [np.zeros(3) for _ in range(50)] + [3]

    with pytest.raises(ConfigError, match="numbers and arrays"):
        read_costs(SequenceDatasetIterator([column]), 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, r"Loader\(iterator, 64\), or what a batch may cost"),
        ({"budget": 9}, "a budget needs to know what samples cost"),
        ({"cost": 1}, "pass budget= as well"),
        ({"batch_size": 4, "budget": 9, "cost": 1}, "exclude each other"),
        ({"budget": Budget(9, 1), "cost": 1}, "leave out cost="),
        ({"budget": 0, "cost": 1}, "a budget must be at least 1, got 0"),
        ({"budget": 9.5, "cost": 1}, "a budget must be an integer, got 9.5"),
        ({"budget": "9", "cost": 1}, "a budget must be an integer"),
        ({"budget": 2**50, "cost": 1}, "a budget must be at most"),
    ],
)
def test_arguments_that_conflict_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Loader(texts(), **arguments)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"padded": "no"}, "padded must be True or False"),
        ({"max_samples": 0}, "max_samples must be at least 1"),
        ({"window": 0}, "the window of a budget must be at least 1"),
        ({"window": 2**30}, "the window of a budget must be at most"),
        ({"group": 2**70}, "the group of a budget must be at most"),
        ({"group": 1.5}, "the group of a budget must be an integer"),
        ({"too_long": "cut"}, "too_long must be one of 'refuse', 'alone', 'drop'"),
    ],
)
def test_options_out_of_range_are_refused(options: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Budget(9, 1, **options)


def test_a_truth_value_is_no_budget() -> None:
    with pytest.raises(ConfigError, match="a budget must be an integer, got True"):
        Loader(texts(), budget=True, cost=1)


def test_small_integers_of_numpy_are_options() -> None:
    plain = Budget(100, 1, max_samples=4, window=50, group=3)
    small = Budget(
        np.uint8(100),
        1,
        max_samples=np.uint8(4),
        window=np.uint8(50),
        group=np.uint8(3),
    )

    assert samples_in(loader_of(budget=small, cost=None)) == samples_in(
        loader_of(budget=plain, cost=None)
    )


def test_a_limit_above_all_samples_is_none() -> None:
    unlimited = samples_in(loader_of(budget=Budget(100, 1), cost=None))

    assert samples_in(loader_of(budget=Budget(100, 1, max_samples=2**70), cost=None)) == unlimited


def test_lanes_need_batches_of_one_size() -> None:
    lanes = Lanes(BlockShuffled(block_lengths=10), lanes=2, batch_size=4)

    with pytest.raises(ConfigError, match="Lanes deals out batches of one size"):
        loader_of(shuffle=lanes)


# ---------------------------------------------------------------------- samples that are too long


def test_samples_above_the_budget_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"2 of 4 samples cost more .* sample 1, which costs 20"):
        loader_of(texts([1, 20, 2, 30]), budget=10)


def test_samples_above_the_budget_are_alone_if_wished() -> None:
    loader = loader_of(texts([1, 20, 2, 30]), budget=Budget(10, 1, too_long="alone"), cost=None)

    assert sorted(samples_in(loader)) == [[1], [2, 0], [3]]


def test_samples_above_the_budget_are_dropped_with_a_warning() -> None:
    with pytest.warns(UserWarning, match=r"2 of 4 samples cost more .* left out") as warned:
        loader = loader_of(texts([1, 20, 2, 30]), budget=Budget(10, 1, too_long="drop"), cost=None)

    assert warned[0].filename == __file__
    assert samples_in(loader) == [[2, 0]]
    assert len(loader) == 1


def test_a_dataset_whose_samples_are_all_dropped_has_no_batch() -> None:
    with pytest.warns(UserWarning, match="3 of 3"):
        loader = loader_of(texts([5, 6, 7]), budget=Budget(4, 1, too_long="drop"), cost=None)

    assert (len(loader), list(loader)) == (0, [])


def test_an_empty_dataset_has_no_batch() -> None:
    loader = loader_of(texts([]))

    assert (len(loader), loader.n_batches_left, list(loader)) == (0, 0, [])


def test_an_endless_loader_without_batches_is_an_error() -> None:
    with pytest.raises(ConfigError, match="endless loader cannot make a batch"):
        next(iter(loader_of(texts([]), epochs=None)))


def test_samples_of_one_cost_make_full_batches() -> None:
    loader = loader_of(texts([5] * 40), budget=20)

    assert [len(batch) for batch in samples_in(loader)] == [4] * 10


def test_damaged_samples_are_not_replaced_by_longer_ones() -> None:
    with pytest.raises(ConfigError, match=r"on_error='replace' .* may cost more"):
        loader_of(on_error="replace")


# ---------------------------------------------------------------------- batches


def test_padded_batches_have_little_padding() -> None:
    loader = loader_of(cost=0, collate=Padded())

    n_places = sum(batch[0].size for batch in loader)

    assert max(batch[0].size for batch in loader) <= 100
    assert COSTS.sum() / n_places > 0.9


def test_each_epoch_has_other_batches() -> None:
    loader = loader_of()

    first = samples_in(loader)
    second = samples_in(loader)

    assert sorted(map(sorted, first)) != sorted(map(sorted, second))
    assert sorted(in_one_list(second)) == list(range(300))


def test_unshuffled_batches_are_neighbours() -> None:
    loader = loader_of(shuffle=False)

    assert in_one_list(samples_in(loader)) == list(range(300))


def test_groups_have_similar_batches_except_at_the_ends_of_windows() -> None:
    n_before = 0
    for n_batches in (13, 40, 2, 1, 25):
        order = arrange_batches(n_batches, n_before, 4, key=n_batches).tolist()

        assert sorted(order) == list(range(n_batches))
        for start in range(-n_before % 4, n_batches - 3, 4):
            group = order[start : start + 4]
            assert group == list(range(group[0], group[0] + 4))
        n_before += n_batches


def test_ranks_of_a_step_have_batches_of_similar_samples() -> None:
    budget = Budget(100, 0, group=4, window=150)
    loaders = [loader_of(budget=budget, cost=None, shard=(rank, 4)) for rank in range(4)]

    steps = zip(*loaders, strict=True)

    spreads = [np.ptp([batch[1].max() for batch in step]) for step in steps]
    n_mixed = sum(spread > 10 for spread in spreads)
    assert n_mixed <= 2  # where the windows meet, and at the end
    assert len(spreads) > 10


def test_lengths_of_epochs_are_exact() -> None:
    loader = loader_of(epochs=5)

    lengths = [len(loader_of(epochs=1, seed=7))]
    batches = iter(loader)
    n_left = loader.n_batches_left
    n_batches = 0
    for _ in batches:
        n_batches += 1
        if n_batches < n_left:
            assert loader.n_batches_left == n_left - n_batches

    assert n_batches == n_left
    assert lengths[0] * 4 < n_batches


def test_random_layers_are_measured_for_each_epoch() -> None:
    loader = loader_of(texts().shuffle(seed=3), cost=0, shuffle=False)

    for _ in range(2):
        batches = samples_in(loader)
        assert sorted(in_one_list(batches)) == list(range(300))
        assert all(max(COSTS[batch]) * len(batch) <= 100 for batch in batches)


def test_costs_by_position_do_not_suit_random_layers() -> None:
    with pytest.raises(ConfigError, match=r"random layers.*redraw=False"):
        loader_of(texts().shuffle(seed=3), cost=COSTS)


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_workers_make_the_same_batches(kind: Any) -> None:
    expected = samples_in(loader_of(epochs=2))

    with Loader(
        texts(), budget=100, cost=1, shuffle=True, seed=7, epochs=2, worker_kind=kind, workers=2,
        shard=(0, 1),
    ) as loader:  # fmt: skip
        assert samples_in(loader) == expected
        assert loader.stats().n_samples == 600


def test_blocks_of_the_next_window_are_prefetched() -> None:
    order = BlockShuffled(block_lengths=30, window=2)
    loader = loader_of(shuffle=order, budget=Budget(100, 1, window=60), cost=None)

    jobs = list(loader._place.schedule_from_here().jobs())

    named = [job.to_prefetch.tolist() for job in jobs if job.to_prefetch is not None]
    windows = [
        sorted({sample // 30 for job in jobs for sample in job.indices.tolist()})
        for jobs in _windows_of(jobs)
    ]
    assert [sorted(sample // 30 for sample in samples) for samples in named] == [*windows[1:], []]


def _windows_of(jobs: list[Any]) -> list[list[Any]]:
    """The jobs of each window, which begins where blocks are named."""
    windows: list[list[Any]] = []
    for job in jobs:
        if job.to_prefetch is not None:
            windows.append([])
        windows[-1].append(job)
    return windows


def test_a_transform_draws_for_each_batch() -> None:
    def draw(batch: Any, rng: np.random.Generator) -> tuple[Any, Any, float]:
        return batch[0], batch[1], rng.random()

    draws = [batch[2] for batch in loader_of(transform=draw)]

    assert len(set(draws)) == len(draws)


def test_the_samples_of_a_step_are_those_of_its_batches() -> None:
    loaders = [loader_of(shard=(rank, 2)) for rank in range(2)]
    ranks = [samples_in(loader) for loader in loaders]

    for step in (0, 7, len(loaders[0]) - 1):
        samples = loaders[0].samples_of(step, rank="all", epoch=0)
        assert samples.indices.tolist() == ranks[0][step] + ranks[1][step]


def test_an_epoch_that_is_left_anywhere_else_does_not_warn() -> None:
    loader = loader_of(budget=Budget(100, 1, window=50), cost=None)
    for n_batches in (3, 10):
        for _ in zip(range(n_batches), loader, strict=False):
            pass

    list(loader)  # warnings are errors


# ---------------------------------------------------------------------- states and copies


def test_another_budget_is_another_order() -> None:
    state = loader_of().state_dict()

    for options in ({"budget": 101}, {"cost": COSTS + 1}, {"shuffle": False}):
        with pytest.raises(LoaderStateError, match="another order"):
            loader_of(**options).load_state_dict(state)


def test_states_of_batches_of_one_size_are_refused() -> None:
    state = loader_of(batch_size=10, budget=None, cost=None).state_dict()

    with pytest.raises(LoaderStateError, match=r"another order.*budget="):
        loader_of().load_state_dict(state)


def test_a_state_brings_its_seed_and_number_of_batches() -> None:
    saved = loader_of(seed=1, epochs=2)
    batches = iter(saved)
    received = [next(batches)[2].tolist() for _ in range(5)]
    resumed = loader_of(seed=2, epochs=2)

    resumed.load_state_dict(saved.state_dict())
    rest = samples_in(resumed)

    assert received + rest == samples_in(loader_of(seed=1, epochs=2))
    assert resumed.plan.n_samples == loader_of(seed=1).plan.n_samples


def test_loaders_pickle_without_their_function_of_costs() -> None:
    loader = loader_of(cost=lambda sample: len(sample[0]))

    copied = pickle.loads(pickle.dumps(loader))

    assert samples_in(copied) == samples_in(loader)


def test_a_loader_with_a_budget_describes_itself() -> None:
    loader = loader_of()

    assert "batches of a cost of 100" in repr(loader)
    assert loader.batch_size is None
    assert loader.n_samples == 300


# ---------------------------------------------------------------------- costs in a store


def test_costs_in_a_store_are_read_once(tmp_path: Path) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(f'{{"n": {cost}}}\n' for cost in COSTS.tolist()))
    budget = Budget(100, "n", storage=tmp_path / "store")

    samples = data_stack.load(path)
    first = Loader(samples, budget=budget, shard=(0, 1))
    (stored,) = (tmp_path / "store" / "costs").iterdir()
    written = stored.stat().st_mtime_ns, stored.read_bytes()
    second = Loader(samples, budget=budget, shard=(0, 1))

    assert len(first) == len(second)
    assert (stored.stat().st_mtime_ns, stored.read_bytes()) == written
    assert parse_costs(written[1], 300).tolist() == COSTS.tolist()  # type: ignore[union-attr]


def test_functions_and_columns_have_costs_of_their_own() -> None:
    store = InMemoryStorageConnector()
    for cost in (0, 1, length_of_tokens):
        loader_of(budget=Budget(100, cost, storage=store), cost=None)

    assert len(list(store.list_resources("costs/"))) == 3


def test_damaged_costs_are_made_again() -> None:
    store = InMemoryStorageConnector()
    budget = Budget(100, 1, storage=store)
    expected = samples_in(loader_of(budget=budget, cost=None))
    (identifier,) = store.list_resources("costs/")
    with store.get_resource(identifier) as resource:
        intact = resource.read()

    for damaged in (b"", intact[:-1], intact + b"0", intact[:60] + b"\0" + intact[61:]):
        store.set_resource(identifier, damaged)
        assert samples_in(loader_of(budget=budget, cost=None)) == expected
        with store.get_resource(identifier) as resource:
            assert resource.read() == intact


def test_stored_costs_are_bound_to_the_number_of_samples() -> None:
    data = format_costs(read_costs(texts([1, 300, 2]), 1))

    assert parse_costs(data, 3).tolist() == [1, 300, 2]  # type: ignore[union-attr]
    assert parse_costs(data, 2) is None
    for end in range(len(data)):
        assert parse_costs(data[:end], 3) is None


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        (Budget(100, lambda sample: 1, storage=InMemoryStorageConnector()), "fingerprint"),
        (Budget(100, COSTS, storage=InMemoryStorageConnector()), "leave it out for an array"),
        (Budget(100, 1, storage=5), "a path, a URL or a StorageConnector"),  # type: ignore[arg-type]
    ],
)
def test_stores_that_cannot_keep_costs_are_refused(budget: Budget, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        loader_of(budget=budget, cost=None)


# ---------------------------------------------------------------------- torch


def test_torch_sees_batches_and_their_number() -> None:
    import torch

    loader = loader_of(cost=0, collate=Padded()).torch()
    expected = samples_in(loader_of(cost=0))

    for_trainers = torch.utils.data.DataLoader(
        loader.dataset, batch_sampler=loader.sampler, collate_fn=loader.collate_fn
    )

    assert len(loader.dataset) == 300
    assert len(for_trainers) == len(expected)
    for epoch in range(4):  # epochs differ in their number of batches
        batches = [batch[2].tolist() for batch in for_trainers]
        reference = loader_of(cost=0)
        reference.set_epoch(epoch)
        assert batches == samples_in(reference)


def test_steps_are_found_by_their_numbers() -> None:
    loader = loader_of(epochs=3).torch()
    expected = samples_in(loader_of(epochs=3))

    for step in (0, 5, len(loader_of()) + 3, len(expected) - 1):
        loader.set_epoch(0)
        loader.seek_step(step)
        assert next(iter(loader))[2].tolist() == expected[step]
