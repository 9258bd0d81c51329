"""Damaged samples: left out or replaced on any rank and worker, and never read again."""

from __future__ import annotations

import copy
import json
import logging
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from damaged_numbers import DamagedNumbers
from hypothesis import given, settings
from hypothesis import strategies as st
from loader_batches import numbers_given, numbers_to
from sizes import sized

from data_stack.dataset.iterator import DatasetIteratorIF, SequenceDatasetIterator
from data_stack.exception import (
    ChecksumMismatchError,
    ConfigError,
    DamagedBlockError,
    DatasetFileCorruptError,
    LoaderStateError,
    LoadingError,
    MissingFileError,
    RequestLimitError,
    ResourceChangedError,
    RetrievalError,
    StorageUnavailableError,
    TooManyDamagedSamplesError,
)
from data_stack.loader import Collation, Concatenated, DamagedSample, Loader, LoaderState, Padded
from data_stack.loader.batch_maker import BatchMaker
from data_stack.loader.epoch_stacks import EpochStacks
from data_stack.loader.error_policy import ErrorPolicy, OnError, parse_error_policy
from data_stack.loader.job import Job
from data_stack.loader.workers.base import WorkerKind

KINDS: list[WorkerKind] = ["inline", "threads", "processes"]


def loader_of(n: int, damaged: Any, batch_size: int = 4, **options: Any) -> Loader:
    options = {"on_error": "skip", "worker_kind": "inline", **options}
    return Loader(DamagedNumbers(n, damaged), batch_size, **options)


# --------------------------------------------------------------------------------------- skip


@pytest.mark.parametrize("kind", KINDS)
def test_skipped_samples_shorten_their_batches(kind: WorkerKind) -> None:
    loader = loader_of(12, [1, 2, 7], worker_kind=kind)

    assert numbers_given(loader) == [[0, 3], [4, 5, 6], [8, 9, 10, 11]]


def test_damage_that_a_later_job_names_is_not_read() -> None:
    stacks = EpochStacks(DamagedNumbers(8, [1]), redraws=True)
    maker = BatchMaker(stacks, policy=parse_error_policy("skip", 100, (), has_log=False))
    earlier_job = Job(0, 0, 0, np.arange(4), 0, (0, 4))
    later_job = Job(0, 1, 4, np.arange(4, 8), 0, (1, 0), damaged=np.array([1]))

    made = list(maker.make_several([earlier_job, later_job]))

    assert [one.batch[0].tolist() for one in made] == [[0, 2, 3], [4, 5, 6, 7]]


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_without_samples_has_the_columns(kind: WorkerKind) -> None:
    pictures = SequenceDatasetIterator([np.zeros((12, 3, 2), np.float32), np.arange(12)])
    samples = DamagedNumbers(12, [0, 1, 2, 3]).zip(pictures)
    loader = Loader(samples, 4, on_error="skip", worker_kind=kind)

    first, *_ = loader

    assert [column.shape for column in first] == [(0,), (0, 3, 2), (0,)]
    assert [column.dtype for column in first] == [np.int64, np.float32, np.int64]


def test_a_function_collates_an_empty_list() -> None:
    loader = loader_of(8, [0, 1, 2, 3], collate=lambda samples: [number for (number,) in samples])

    assert list(loader) == [[], [4, 5, 6, 7]]


def damaged_texts() -> DatasetIteratorIF:
    texts = SequenceDatasetIterator([[np.arange(number % 3 + 1) for number in range(8)]])
    return DamagedNumbers(8, [0, 1, 2, 3]).zip(texts)


def test_padded_columns_have_no_rows() -> None:
    first, second = Loader(damaged_texts(), 4, on_error="skip", workers=0, collate=Padded())

    assert [column.shape[0] for column in first] == [0, 0, 0]
    assert [column.ndim for column in first] == [column.ndim for column in second]
    assert [column.dtype for column in first] == [column.dtype for column in second]


def test_concatenated_columns_have_no_rows() -> None:
    first, second = Loader(damaged_texts(), 4, on_error="skip", workers=0, collate=Concatenated())

    assert len(first[1]) == 0
    assert first[1].values.shape == (0,)
    assert first[1].values.dtype == second[1].values.dtype


class Listed(Collation):
    """Returns a list, in which nobody can tell rows."""

    def collate(self, batch: Any) -> Any:
        return list(batch)


def test_a_collation_without_rows_is_an_error() -> None:
    loader = loader_of(8, [0, 1, 2, 3], collate=Listed())

    with pytest.raises(LoadingError, match="use on_error='replace'"):
        next(iter(loader))


def test_torch_gets_a_batch_without_rows() -> None:
    first, second = loader_of(8, [0, 1, 2, 3]).torch()

    assert first[0].shape == (0,)
    assert first[0].dtype == second[0].dtype


def test_torchs_loader_gets_the_same_batches() -> None:
    import torch

    loader = loader_of(12, [1, 2, 7], on_error="replace").torch()
    expected = numbers_given(loader_of(12, [1, 2, 7], on_error="replace"))

    by_step = torch.utils.data.DataLoader(
        loader.dataset, batch_sampler=loader.sampler, collate_fn=loader.collate_fn
    )

    assert [numbers.tolist() for (numbers,) in by_step] == expected


# ------------------------------------------------------------------------------------ replace


@pytest.mark.parametrize("kind", KINDS)
def test_replaced_samples_leave_batches_full(kind: WorkerKind) -> None:
    loader = loader_of(12, [1, 2, 7], on_error="replace", worker_kind=kind)

    batches = numbers_given(loader)

    expected = numbers_given(loader_of(12, [1, 2, 7], on_error="replace"))
    assert batches == expected
    assert [len(batch) for batch in batches] == [4, 4, 4]
    assert not {1, 2, 7} & {number for batch in batches for number in batch}
    assert batches[0][0] == 0
    assert batches[2] == [8, 9, 10, 11]


def test_substitutes_differ_between_epochs() -> None:
    loader = loader_of(1000, range(10), 10, on_error="replace", epochs=2)

    batches = numbers_given(loader)

    assert batches[0] != batches[100]


def test_a_single_readable_sample_replaces_all_others() -> None:
    loader = loader_of(6, [0, 1, 2, 4, 5], on_error="replace")

    assert numbers_given(loader) == [[3, 3, 3, 3], [3, 3]]


def test_too_few_readable_samples_are_an_error() -> None:
    loader = loader_of(10**6, range(1, 10**6), 2, on_error="replace", max_errors=10**7)

    with pytest.raises(LoadingError, match="no substitute for the damaged sample 1"):
        next(iter(loader))


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_an_error_counts_the_damaged_samples_that_were_tried(on_error: OnError) -> None:
    loader = loader_of(20, range(20), on_error=on_error)

    with pytest.raises(LoadingError, match="20 of 20"):
        list(loader)


# ---------------------------------------------------------------------------------- the limit


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_a_source_that_always_fails_stops_soon(
    kind: WorkerKind, on_error: OnError, tmp_path: Path
) -> None:
    source = DamagedNumbers(5000, range(5000), reads=tmp_path / "reads")
    loader = Loader(source, 8, on_error=on_error, max_errors=20, worker_kind=kind, workers=None)

    with pytest.raises(TooManyDamagedSamplesError, match="max_errors=20") as caught:
        list(loader)

    assert "sample 0 (row 0 of numbers.bin): DatasetFileCorruptError" in str(caught.value)
    assert len(caught.value.samples) > 20
    assert len(source.numbers_read()) < 500


def test_max_errors_samples_may_be_damaged() -> None:
    assert len(list(loader_of(12, [1, 2, 7], max_errors=3))) == 3

    with pytest.raises(TooManyDamagedSamplesError, match="3 samples are damaged"):
        list(loader_of(12, [1, 2, 7], max_errors=2))


def test_the_limit_counts_each_sample_once_in_the_training() -> None:
    loader = loader_of(12, [1, 2, 7], max_errors=3, epochs=5)

    assert len(list(loader)) == 15
    assert loader.stats().damaged == {"DatasetFileCorruptError": 3}


def test_the_limit_counts_samples_before_resuming() -> None:
    loader = loader_of(12, [1, 7], max_errors=1)
    numbers_given(loader, 1)
    resumed = loader_of(12, [1, 7], max_errors=1)

    resumed.load_state_dict(loader.state_dict())

    with pytest.raises(TooManyDamagedSamplesError):
        list(resumed)


def test_the_error_of_the_limit_survives_pickling() -> None:
    with pytest.raises(TooManyDamagedSamplesError) as caught:
        list(loader_of(12, [1, 7], max_errors=1))

    copied = pickle.loads(pickle.dumps(caught.value))

    assert str(copied) == str(caught.value)
    assert copied.samples == caught.value.samples


# ----------------------------------------------------------------------- which errors are damage


def unreachable() -> Exception:
    return StorageUnavailableError("the server did not answer")


NO_DAMAGE: list[Callable[[], Exception]] = [
    lambda: ValueError("a bug"),
    lambda: KeyError("label"),
    lambda: OSError("disk"),
    lambda: FileNotFoundError("a.jpg"),
    lambda: MissingFileError("/a.jpg"),
    lambda: MemoryError(),
    lambda: ConnectionError("reset"),
    lambda: TimeoutError("slow"),
    unreachable,
    lambda: RetrievalError("raw/a.bin"),
    lambda: ResourceChangedError("a", "b", "c"),
    lambda: ConfigError("shapes differ"),
]
DAMAGE: list[Callable[[], Exception]] = [
    lambda: DatasetFileCorruptError("truncated"),
    lambda: ChecksumMismatchError("a", "b", "c", "d"),
    lambda: DamagedBlockError("a", "b", 0, 1, "c", "d"),
    lambda: RequestLimitError("a.jpg", 2, 1),
]


@pytest.mark.parametrize("make_error", NO_DAMAGE, ids=lambda make: type(make()).__name__)
@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_other_errors_are_raised(make_error: Callable[[], Exception], on_error: OnError) -> None:
    def fail_at_seven(number: Any) -> Any:
        if number == 7:
            raise make_error()
        return number

    iterator = numbers_to(12).map(fail_at_seven, column=0)
    loader = Loader(iterator, 4, on_error=on_error, worker_kind="inline")

    with pytest.raises(LoadingError) as caught:
        list(loader)

    assert type(caught.value) is LoadingError
    assert type(caught.value.__cause__) is type(make_error())
    assert caught.value.index == 7
    assert loader.damaged_samples() == []


@pytest.mark.parametrize("make_error", DAMAGE, ids=lambda make: type(make()).__name__)
def test_damage_is_tolerated(make_error: Callable[[], Exception]) -> None:
    def fail_at_seven(number: Any) -> Any:
        if number == 7:
            raise make_error()
        return number

    iterator = numbers_to(12).map(fail_at_seven, column=0)
    loader = Loader(iterator, 4, on_error="skip", worker_kind="inline")

    assert numbers_given(loader)[1] == [4, 5, 6]
    assert loader.stats().damaged == {type(make_error()).__name__: 1}


def test_named_errors_are_damage() -> None:
    source = DamagedNumbers(8, [5], error=KeyError)

    batches = numbers_given(Loader(source, 4, on_error="skip", errors=(KeyError, OSError)))

    assert batches == [[0, 1, 2, 3], [4, 6, 7]]


def test_processes_know_classes_of_errors_of_a_script() -> None:
    class Unreadable(Exception):
        pass

    source = DamagedNumbers(8, [5], error=Unreadable)
    loader = Loader(source, 4, on_error="skip", errors=Unreadable, worker_kind="processes")

    assert numbers_given(loader) == [[0, 1, 2, 3], [4, 6, 7]]
    assert loader.stats().damaged == {"Unreadable": 1}


def test_errors_of_collate_and_transform_are_raised() -> None:
    def fail(batch: Any) -> Any:
        raise DatasetFileCorruptError("a bug")

    for name in ("collate", "transform"):
        options: dict[str, Any] = {name: fail}
        with pytest.raises(LoadingError, match="a bug"):
            list(loader_of(8, [1], errors=(DatasetFileCorruptError,), **options))


def test_an_error_of_a_whole_batch_is_raised() -> None:
    class Together(DamagedNumbers):
        def read_batch(self, indices: Any) -> Any:
            if len(indices) > 1:
                raise DatasetFileCorruptError("only together")
            return super().read_batch(indices)

    loader = Loader(Together(8, []), 4, on_error="skip", worker_kind="inline")

    with pytest.raises(LoadingError, match="a batch could not be read"):
        list(loader)


@pytest.mark.parametrize(
    "arguments",
    [
        {"on_error": "ignore"},
        {"on_error": None},
        {"max_errors": -1},
        {"max_errors": 1.5},
        {"errors": (KeyboardInterrupt,)},
        {"errors": ("ValueError",)},
        {"errors": 3},
        {"error_log": 3},
        {"error_log": "no/such/folder/log.jsonl"},
        {"error_log": "."},
    ],
    ids=str,
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(arguments))):
        loader_of(8, [], **arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        {"max_errors": 10},
        {"max_errors": 100},
        {"errors": ValueError},
        {"error_log": "damaged.jsonl"},
    ],
)
def test_arguments_without_effect_are_refused(arguments: dict[str, Any]) -> None:
    name = next(iter(arguments))

    with pytest.raises(ConfigError, match=rf"{name}= would have no effect; pass on_error='skip'"):
        Loader(DamagedNumbers(8, []), 4, **arguments)


def test_one_class_of_errors_may_stand_alone() -> None:
    assert ErrorPolicy().errors == ()
    assert len(list(loader_of(8, [], errors=ValueError))) == 2


def test_a_budget_allows_no_substitutes() -> None:
    with pytest.raises(ConfigError, match="on_error='skip'"):
        Loader(DamagedNumbers(8, []), budget=10, cost=0, on_error="replace")


def test_batches_of_a_budget_skip_damaged_samples() -> None:
    loader = Loader(DamagedNumbers(8, []), budget=9, cost=0, on_error="skip", workers=0)
    undamaged = numbers_given(loader)
    damaged = DamagedNumbers(8, [])
    loader = Loader(damaged, budget=9, cost=0, on_error="skip", workers=0, epochs=2)
    damaged.damaged = frozenset([3, 6])

    batches = numbers_given(loader)

    expected = [[number for number in batch if number not in (3, 6)] for batch in undamaged]
    assert batches == expected * 2


# ---------------------------------------------------------------------------- what is remembered


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_damaged_samples_are_read_once(kind: WorkerKind, on_error: OnError, tmp_path: Path) -> None:
    source = DamagedNumbers(40, [3, 7, 20], reads=tmp_path / "reads")
    options: dict[str, Any] = {"on_error": on_error, "worker_kind": kind, "workers": None}
    loader = Loader(source, 4, **options)
    first = numbers_given(loader)
    resumed = Loader(source, 4, **options)
    resumed.load_state_dict(json.loads(json.dumps(loader.state_dict())))
    source.reads.unlink()  # type: ignore[union-attr]  # it is a path here

    later = [numbers_given(loader), numbers_given(resumed)]

    assert not {3, 7, 20} & set(source.numbers_read())
    assert later[0] == later[1]
    if on_error == "skip":
        assert later[0] == first


def test_random_layers_do_not_hide_damaged_samples(tmp_path: Path) -> None:
    source = DamagedNumbers(40, [3, 7, 20], reads=tmp_path / "reads")
    other = DamagedNumbers(30, [5], reads=tmp_path / "other")
    mixed = (
        source.shuffle(seed=1)
        .map(lambda sample: sample)
        .mix(other.shuffle(seed=2), proportions=[0.5, 0.5], seed=3)
    )
    loader = Loader(mixed, 4, on_error="skip", worker_kind="inline", epochs=3)
    list(loader)
    for path in (tmp_path / "reads", tmp_path / "other"):
        path.unlink()

    list(loader)

    assert loader.stats().damaged == {"DatasetFileCorruptError": 4}
    assert {sample.position for sample in loader.damaged_samples()} == {3, 7, 20, 40 + 5}
    assert not {3, 7, 20} & set(source.numbers_read())
    assert 5 not in other.numbers_read()


def test_samples_made_of_drawn_ones_are_damaged_in_one_epoch() -> None:
    pairs = DamagedNumbers(10, [3]).shuffle(seed=1).zip(numbers_to(10).shuffle(seed=2))
    loader = Loader(pairs, 5, on_error="skip", worker_kind="inline", epochs=2)

    batches = list(loader)

    assert sum(len(batch[0]) for batch in batches) == 18
    assert [sample.epoch for sample in loader.damaged_samples()] == [0, 1]
    state = LoaderState.from_dict(json.loads(json.dumps(loader.state_dict())))
    assert [epoch for epoch, _ in (state.damaged or {})["DatasetFileCorruptError"]] == [0, 1]


def test_facts_of_damaged_samples_are_kept() -> None:
    loader = loader_of(8, [5])

    list(loader)

    assert loader.damaged_samples() == [
        DamagedSample(
            5,
            None,
            "row 5 of numbers.bin",
            "DatasetFileCorruptError",
            "number 5 is damaged",
        )
    ]


def test_credentials_in_errors_are_hidden() -> None:
    class Failing(DamagedNumbers):
        def read(self, position: int) -> tuple[int]:
            raise DatasetFileCorruptError("https://me:secret@host/a?token=abc is truncated")

    loader = Loader(Failing(2, []), 2, on_error="skip", max_errors=0)

    with pytest.raises(TooManyDamagedSamplesError) as caught:
        list(loader)

    assert "secret" not in str(caught.value.samples)
    assert "abc" not in str(caught.value.samples)


def test_statistics_count_what_was_delivered() -> None:
    skipping = loader_of(12, [1, 2, 7])
    replacing = loader_of(12, [1, 2, 7], on_error="replace")
    list(skipping)
    list(replacing)

    figures = skipping.stats()
    assert (figures.n_samples, figures.n_skipped, figures.n_replaced) == (9, 3, 0)
    assert "damaged: 3 DatasetFileCorruptError; 3 samples skipped, 0 replaced" in str(figures)
    figures = replacing.stats()
    assert (figures.n_samples, figures.n_skipped, figures.n_replaced) == (12, 0, 3)


def test_states_without_damage_are_as_before() -> None:
    tolerant = loader_of(8, [])
    strict = Loader(DamagedNumbers(8, []), 4, worker_kind="inline")
    numbers_given(tolerant, 1)
    numbers_given(strict, 1)

    assert tolerant.state_dict() == strict.state_dict()
    assert "damaged" not in tolerant.state_dict()


def test_a_changed_list_of_damage_is_refused() -> None:
    loader = loader_of(8, [1])
    numbers_given(loader, 1)
    state = loader.state_dict()
    state["damaged"] = {"DatasetFileCorruptError": [1, 2]}

    with pytest.raises(LoaderStateError, match="changed or damaged"):
        loader.load_state_dict(state)


def test_a_strict_loader_raises_what_a_state_names() -> None:
    loader = loader_of(8, [5])
    numbers_given(loader)
    strict = loader_of(8, [5], on_error="raise")

    strict.load_state_dict(loader.state_dict())

    with pytest.raises(LoadingError, match="sample 5"):
        list(strict)
    assert "damaged" in strict.state_dict()


def test_copies_remember_damage_by_themselves() -> None:
    loader = loader_of(8, [1, 6])
    numbers_given(loader, 1)

    copied = copy.copy(loader)
    sent = pickle.loads(pickle.dumps(loader))
    list(loader)

    assert [sample.position for sample in copied.damaged_samples()] == [1]
    assert [sample.position for sample in sent.damaged_samples()] == [1]
    assert [sample.position for sample in loader.damaged_samples()] == [1, 6]


def test_a_damaged_first_sample_damages_no_other_one() -> None:
    pairs = DamagedNumbers(8, [0]).zip(numbers_to(8)).as_tuple(0)
    loader = Loader(pairs, 4, on_error="skip", worker_kind="inline")

    assert numbers_given(loader) == [[1, 2, 3], [4, 5, 6, 7]]


def test_an_example_has_no_damaged_samples() -> None:
    loader = loader_of(8, [1])

    batch, n_samples = loader.example_batch()

    assert batch[0].tolist() == [0, 2, 3]
    assert n_samples == 3


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_the_samples_of_a_step_are_those_that_were_read(on_error: OnError) -> None:
    loader = loader_of(40, [3, 7, 20], shuffle=True, on_error=on_error, epochs=2)
    batches = numbers_given(loader)
    interrupted = loader_of(40, [3, 7, 20], shuffle=True, on_error=on_error, epochs=2)
    numbers_given(interrupted, 15)
    state = interrupted.state_dict()
    later = loader_of(40, [3, 7, 20], shuffle=True, on_error=on_error, epochs=2)

    for step, batch in enumerate(batches):
        assert loader.samples_of(step).indices.tolist() == batch
    for step in range(10, 20):
        assert later.samples_of(step - 15, state=state).indices.tolist() == batches[step]


# ------------------------------------------------------------------------------------- the log


@pytest.mark.parametrize("kind", KINDS)
def test_the_log_has_each_sample_once(kind: WorkerKind, tmp_path: Path) -> None:
    path = tmp_path / "damaged.jsonl"
    loader = loader_of(12, [1, 7], worker_kind=kind, error_log=path, epochs=3, workers=None)

    list(loader)
    resumed = loader_of(12, [1, 7], error_log=path)
    resumed.load_state_dict(loader.state_dict())
    list(resumed)

    lines = [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]
    assert [line["position"] for line in lines] == [1, 7]
    assert lines[0] == {
        "position": 1,
        "epoch": None,
        "location": "row 1 of numbers.bin",
        "error": "DatasetFileCorruptError",
        "message": "number 1 is damaged",
        "rank": 0,
    }


def test_the_log_has_the_samples_beyond_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "damaged.jsonl"
    loader = loader_of(12, range(12), error_log=path, max_errors=5)

    with pytest.raises(TooManyDamagedSamplesError):
        list(loader)

    assert len(path.read_text().splitlines()) == 6


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device without room")
def test_a_log_that_cannot_be_written_is_a_warning() -> None:
    loader = loader_of(12, [1, 7], error_log="/dev/full")

    with pytest.warns(RuntimeWarning, match="error_log") as caught:
        batches = numbers_given(loader)

    assert len(caught) == 1
    assert batches[0] == [0, 2, 3]


def test_the_program_log_names_damaged_samples(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="data_stack"):
        list(loader_of(8, [5], epochs=2))

    assert [record.getMessage() for record in caplog.records] == [
        "a damaged sample is left out: sample 5 (row 5 of numbers.bin): DatasetFileCorruptError: "
        "number 5 is damaged"
    ]


def test_the_program_log_ends_before_it_is_flooded(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="data_stack"):
        list(loader_of(60, range(30)))

    assert len(caplog.records) == 11
    assert "further damaged samples are not logged" in caplog.records[-1].getMessage()


# ------------------------------------------------------------------------------------- the law


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    n = draw(st.integers(1, 40))
    damaged = draw(st.sets(st.integers(0, n - 1), max_size=n - 1))
    return {
        "n": n,
        "damaged": damaged,
        "batch_size": draw(st.integers(1, 7)),
        "world": draw(st.integers(1, 4)),
        "shuffle": draw(st.booleans()),
        "stack": draw(st.sampled_from(["source", "shuffled", "mixed"])),
        "seed": draw(st.integers(0, 5)),
        "n_received": draw(st.integers(0, 12)),
        "on_error": draw(st.sampled_from(["skip", "replace"])),
        "resumed_kind": draw(st.sampled_from(["inline", "threads"])),
    }


def stack_of(case: dict[str, Any], damaged: set[int]) -> DatasetIteratorIF:
    source = DamagedNumbers(case["n"], damaged)
    if case["stack"] == "shuffled":
        return source.shuffle(seed=4)
    if case["stack"] == "mixed":
        others = SequenceDatasetIterator([np.arange(1000, 1015)])
        return source.shuffle(seed=4).mix(others, proportions=[0.7, 0.3], seed=5)
    return source


def rank_loader(case: dict[str, Any], damaged: set[int], rank: int, **options: Any) -> Loader:
    return Loader(
        stack_of(case, damaged),
        case["batch_size"],
        shuffle=case["shuffle"],
        seed=case["seed"],
        epochs=3,
        shard=(rank, case["world"]),
        **{"on_error": case["on_error"], "worker_kind": "inline", **options},
    )


@settings(max_examples=sized(40, 600), deadline=None)
@given(case=cases())
def test_the_law_of_damaged_samples(case: dict[str, Any]) -> None:
    damaged = case["damaged"]
    n_steps = set()
    for rank in range(case["world"]):
        undamaged = numbers_given(rank_loader(case, set(), rank, on_error="raise"))
        batches = numbers_given(rank_loader(case, damaged, rank))
        n_steps.add(len(batches))

        # Only the damaged samples differ.
        assert len(batches) == len(undamaged)
        for batch, expected in zip(batches, undamaged, strict=True):
            if case["on_error"] == "skip":
                assert batch == [number for number in expected if number not in damaged]
                continue
            assert len(batch) == len(expected)
            for number, expected_number in zip(batch, expected, strict=True):
                assert number not in damaged
                assert number == expected_number or expected_number in damaged

        # A run that is killed and resumed is the same, wherever the damage was met.
        interrupted = rank_loader(case, damaged, rank)
        before = []
        if case["n_received"]:
            before = numbers_given(interrupted, case["n_received"])
        state = json.loads(json.dumps(interrupted.state_dict()))
        resumed = rank_loader(case, damaged, rank, worker_kind=case["resumed_kind"], workers=None)
        resumed.load_state_dict(state)
        if len(before) < len(batches):
            assert before + numbers_given(resumed) == batches
    assert len(n_steps) == 1


@settings(max_examples=sized(20, 200), deadline=None)
@given(case=cases())
def test_substitutes_do_not_depend_on_the_ranks(case: dict[str, Any]) -> None:
    case = {**case, "on_error": "replace"}
    n_full_steps = case["n"] // (case["batch_size"] * case["world"])

    one_rank = {**case, "world": 1, "batch_size": case["batch_size"] * case["world"]}
    expected = numbers_given(rank_loader(one_rank, case["damaged"], 0))[:n_full_steps]

    of_ranks = []
    for rank in range(case["world"]):
        of_ranks.append(numbers_given(rank_loader(case, case["damaged"], rank)))
    for step in range(n_full_steps):
        joined = [number for batches in of_ranks for number in batches[step]]
        assert joined == expected[step]
