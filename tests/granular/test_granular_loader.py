"""Programs of Granular that load, with the import replaced: sources draw as Granular's, and states are exchanged with it."""

from __future__ import annotations

import json
from typing import Any

import data_stack_granular as ours
import granular
import numpy as np
import numpy.typing as npt
import pytest

DATA = [{"foo": i, "bar": np.full((2, 3), i, np.float32)} for i in range(10)]


def doubled(datapoint: dict[str, Any], seed: list[int]) -> dict[str, Any]:
    return {"foo": 2 * datapoint["foo"], "draw": np.random.default_rng(seed).random()}


def stacked(module: Any, seed: int) -> Any:
    sources = module.sources
    epochs = sources.Epochs(DATA, shuffle=True)
    mixed = sources.Mix([epochs, sources.Sample(DATA, 7, seed)], [1, 3], seed)
    return sources.Transform(sources.Interleave([mixed, sources.Truncate(DATA, 4), DATA.__getitem__]), doubled, seed)


@pytest.mark.parametrize("seed", [0, 7])
def test_sources_draw_what_granulars_draw(seed: int) -> None:
    assert [stacked(ours, seed)(step) for step in range(30)] == [stacked(granular, seed)(step) for step in range(30)]


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_go_on_from_a_state(workers: int) -> None:
    source = ours.sources.Epochs(DATA, shuffle=False)
    loader = ours.Loader(source, 4, workers=workers, recycle_after=2)
    assert loader.spec == {"foo": (np.dtype(np.int64), ()), "bar": (np.dtype(np.float32), (2, 3))}
    batches = iter(loader)
    first = [next(batches) for _ in range(3)]
    state = json.loads(json.dumps(batches.save()))
    expected = [next(batches)["foo"].tolist() for _ in range(2)]
    batches.load(state)
    again = [next(batches)["foo"].tolist() for _ in range(2)]
    batches.close()

    assert first[2]["foo"].tolist() == [8, 9, 0, 1]
    assert first[0]["bar"].shape == (4, 2, 3)
    assert state == {"step": 12}
    assert again == expected == [[2, 3, 4, 5], [6, 7, 8, 9]]
    assert loader.consumed == 20


def test_ranks_share_the_steps_as_granulars_do() -> None:
    loaders = [ours.Loader(DATA, 2, workers=0, shard_id=rank, num_shards=2) for rank in range(2)]
    for loader in loaders:
        loader.load({"step": 4})

    assert [batch["foo"].tolist() for batch in next(zip(*loaders, strict=True))] == [[4, 5], [6, 7]]
    assert [loader.save() for loader in loaders] == [{"step": 8}, {"step": 8}]


def changing(step: int) -> dict[str, npt.NDArray[Any]]:
    return {"x": np.zeros(3) if step % 4 < 3 else np.zeros(4), "y": np.float32(step) if step < 4 else np.int8(step)}


def test_errors_are_runtime_errors_and_dtypes_those_of_the_spec() -> None:
    with pytest.raises(RuntimeError, match="sample 3 could"):
        next(ours.Loader({i: DATA[i] for i in range(3)}.__getitem__, 4, workers=0))
    with pytest.raises(RuntimeError, match="dicts"):
        next(ours.Loader(lambda step: 5, 4, workers=0))
    with pytest.raises(RuntimeError):
        next(ours.Loader(changing, 4, workers=0))
    loader = ours.Loader(lambda step: {"y": changing(step)["y"]}, 4, workers=0)

    assert [next(loader)["y"].dtype, next(loader)["y"].dtype] == [np.float32, np.float32]
    with pytest.raises(RuntimeError, match="datapoint 0"):
        list(zip(ours.Loader(lambda step: {"y": 1 if step < 2 else 1.5}, 2, workers=0), range(2), strict=False))


@pytest.mark.parametrize("source", ["digits", {"train": DATA}, 3])
def test_what_is_not_a_source_is_refused(source: Any) -> None:
    with pytest.raises(TypeError, match="expected a source, a function of a step"):
        ours.Loader(source, 2, workers=0)
