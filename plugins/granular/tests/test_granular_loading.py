"""Programs of Granular that load batches, with the import replaced.

The draws of sources and the states of loaders are those of Granular.
"""

from __future__ import annotations

import json
from typing import Any

import data_stack_granular as ours
import granular
import numpy as np
import numpy.typing as npt
import pytest
from data_stack_granular.loader import split_prefetch

DATA = [{"foo": i, "bar": np.full((2, 3), i, np.float32)} for i in range(10)]


# ------------------------------------------------------------------ sources


def doubled(datapoint: dict[str, Any], seed: list[int]) -> dict[str, Any]:
    return {"foo": 2 * datapoint["foo"], "draw": np.random.default_rng(seed).random()}


def make_stack(module: Any, seed: int) -> Any:
    """Return a stack of all sources, of ``ours`` or of ``granular``."""
    sources = module.sources
    epochs = sources.Epochs(DATA, shuffle=True)
    sample = sources.Sample(DATA, 7, seed)
    mixed = sources.Mix([epochs, sample], [1, 3], seed)
    truncated = sources.Truncate(DATA, 4)
    interleaved = sources.Interleave([mixed, truncated, DATA.__getitem__])
    return sources.Transform(interleaved, doubled, seed)


@pytest.mark.parametrize("seed", [0, 7])
def test_sources_draw_what_those_of_granular_draw(seed: int) -> None:
    source = make_stack(ours, seed)
    source_of_granular = make_stack(granular, seed)

    for step in range(30):
        assert source(step) == source_of_granular(step)


@pytest.mark.parametrize("source", ["digits", {"train": DATA}, 3])
def test_what_is_not_a_source_is_refused(source: Any) -> None:
    with pytest.raises(TypeError, match="expected a source, a function of a step"):
        ours.Loader(source, 2, workers=0)


# ------------------------------------------------------------------ batches


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_go_on_from_a_state(workers: int) -> None:
    source = ours.sources.Epochs(DATA, shuffle=False)
    loader = ours.Loader(source, 4, workers=workers, recycle_after=2)
    batches = iter(loader)
    first_batches = [next(batches) for _ in range(3)]
    state = json.loads(json.dumps(batches.save()))
    expected = [next(batches)["foo"].tolist() for _ in range(2)]

    batches.load(state)
    resumed = [next(batches)["foo"].tolist() for _ in range(2)]
    batches.close()

    assert first_batches[0]["bar"].shape == (4, 2, 3)
    assert first_batches[2]["foo"].tolist() == [8, 9, 0, 1]
    assert state == {"step": 12}
    assert expected == [[2, 3, 4, 5], [6, 7, 8, 9]]
    assert resumed == expected
    assert loader.consumed == 20


def test_the_spec_has_dtypes_and_shapes_of_values() -> None:
    loader = ours.Loader(DATA, 4, workers=0)

    assert loader.spec == {"foo": (np.dtype(np.int64), ()), "bar": (np.dtype(np.float32), (2, 3))}


def test_ranks_share_the_steps_as_those_of_granular_do() -> None:
    loaders = [ours.Loader(DATA, 2, workers=0, shard_id=rank, num_shards=2) for rank in range(2)]
    for loader in loaders:
        loader.load({"step": 4})

    assert next(loaders[0])["foo"].tolist() == [4, 5]
    assert next(loaders[1])["foo"].tolist() == [6, 7]
    assert [loader.save() for loader in loaders] == [{"step": 8}, {"step": 8}]


# ------------------------------------------------------------------ dtypes and errors


def make_float_then_integer(step: int) -> dict[str, Any]:
    return {"y": np.float32(step) if step < 4 else np.int8(step)}


def make_longer_array_at_last(step: int) -> dict[str, npt.NDArray[Any]]:
    return {"x": np.zeros(3) if step % 4 < 3 else np.zeros(4)}


def make_integer_then_float(step: int) -> dict[str, Any]:
    return {"y": 1 if step < 2 else 1.5}


def stop_iteration(step: int) -> dict[str, Any]:
    raise StopIteration


def test_batches_have_the_dtype_of_the_spec() -> None:
    loader = ours.Loader(make_float_then_integer, 4, workers=0)

    assert next(loader)["y"].dtype == np.float32
    assert next(loader)["y"].dtype == np.float32


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ({i: DATA[i] for i in range(3)}.__getitem__, "sample 3 could"),
        (lambda step: 5, "dicts"),
        (make_longer_array_at_last, "'x' is object"),
    ],
    ids=["missing", "no dict", "shapes"],
)
def test_datapoints_that_make_no_batch_are_runtime_errors(source: Any, problem: str) -> None:
    with pytest.raises(RuntimeError, match=problem):
        next(ours.Loader(source, 4, workers=0))


def test_values_that_do_not_fit_the_spec_are_runtime_errors() -> None:
    loader = ours.Loader(make_integer_then_float, 2, workers=0)
    next(loader)

    with pytest.raises(RuntimeError, match="datapoint 0"):
        next(loader)


def test_a_source_that_stops_iteration_ends_no_loop() -> None:
    loader = ours.Loader(stop_iteration, 2, workers=0, shard_id=0, num_shards=1)

    with pytest.raises(RuntimeError, match="raised StopIteration"):
        list(loader)
    with pytest.raises(RuntimeError, match="raised StopIteration at step 0"):
        _ = loader.spec


def test_workers_share_the_batches_to_prefetch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("data_stack_granular.loader.n_processors", lambda: 4)

    assert [split_prefetch(8, workers) for workers in (None, 0, 1, 3, 16)] == [2, 8, 8, 3, 1]
