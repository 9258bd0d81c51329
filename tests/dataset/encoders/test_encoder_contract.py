"""What every encoder promises: a row is a batch of 1, states are plain data, and rebuild it anywhere."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from data_stack.dataset.encoders import (
    CategoricalEncoder,
    ClassMapping,
    ContinuousEncoder,
    Encoder,
    FeatureEncoder,
    ImageEncoder,
    OneHotEncoder,
    encoder_from_state,
    load_encoder,
    save_encoder,
)
from data_stack.exception import ConfigError, DatasetFileCorruptError, ModelNotTrainedError, ResourceNotFoundError
from data_stack.io.storage_connectors import FileStorageConnector, InMemoryStorageConnector

RNG = np.random.default_rng(7)
NUMBERS = RNG.normal(3.0, 5.0, size=(40, 3))
WORDS = np.array(["cat", "dog", "Ünï", ""] * 10, dtype=object)
IMAGES = RNG.integers(0, 256, size=(40, 5, 4, 3), dtype=np.uint8)
MIXED = np.fromiter(([float(x), str(word), i % 4] for i, (x, word) in enumerate(zip(NUMBERS[:, 0], WORDS, strict=True))), object)

CASES: dict[str, tuple[Callable[[], Encoder], Any]] = {
    "categorical": (lambda: CategoricalEncoder(unknown="index"), WORDS),
    "categorical_ordinal": (lambda: CategoricalEncoder("ordinal"), NUMBERS[:, 0].round()),
    "categorical_given": (
        lambda: CategoricalEncoder(categories=[3, None, "x", 2.5]),
        np.array([3, None, 2.5, "x"] * 10, dtype=object),
    ),
    "class_mapping": (lambda: ClassMapping({("cat", "dog"): "animal", "": None}), WORDS),
    "continuous": (ContinuousEncoder, NUMBERS),
    "continuous_scalar": (lambda: ContinuousEncoder("min_max", dtype="float64"), NUMBERS[:, 1]),
    "continuous_max_abs": (lambda: ContinuousEncoder("max_abs", missing="zeros"), NUMBERS),
    "continuous_none": (lambda: ContinuousEncoder("none", missing="error"), NUMBERS),
    "features": (
        lambda: FeatureEncoder({0: ContinuousEncoder(), 1: CategoricalEncoder(unknown="zeros"), 2: ContinuousEncoder("min_max")}),
        MIXED,
    ),
    "features_named": (lambda: FeatureEncoder({"b": ContinuousEncoder()}, feature_names=["a", "b", "c"]), NUMBERS),
    "image": (ImageEncoder, IMAGES),
    "image_given": (lambda: ImageEncoder([0.4, 0.5, 0.6], 0.25), IMAGES),
    "one_hot": (lambda: OneHotEncoder(["", "cat", "dog", "Ünï"]), WORDS),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[Encoder, Any]:
    """A fitted encoder and a column that it encodes."""
    make, column = CASES[request.param]
    return make().fit(column, fitted_on="f" * 64), column


def test_each_row_is_encoded_as_in_a_batch(case: tuple[Encoder, Any]) -> None:
    encoder, column = case

    batch = encoder.transform(column)

    rows = [encoder.transform(column[i : i + 1]) for i in range(len(column))]
    joined = np.concatenate(rows)
    assert len(batch) == len(column)
    assert (joined.dtype, joined.shape) == (batch.dtype, batch.shape)
    assert joined.tolist() == batch.tolist()
    nothing = encoder.transform(column[:0])
    assert (nothing.shape, nothing.dtype) == ((0, *batch.shape[1:]), batch.dtype)
    if encoder.output_size is not None:
        assert np.size(batch[0]) == encoder.output_size
    if encoder.output_names is not None:
        assert len(encoder.output_names) == encoder.output_size


def test_a_state_is_json_and_rebuilds_the_encoder_bit_by_bit(case: tuple[Encoder, Any]) -> None:
    encoder, column = case

    rebuilt = encoder_from_state(json.loads(json.dumps(encoder.state())))

    assert rebuilt == encoder
    assert rebuilt.is_fitted
    assert rebuilt.fitted_on == encoder.fitted_on
    assert rebuilt.state() == encoder.state()
    assert rebuilt.fingerprint() == encoder.fingerprint()
    assert rebuilt.output_names == encoder.output_names
    assert rebuilt.class_names == encoder.class_names
    assert same_bits(rebuilt.transform(column), encoder.transform(column))


def test_a_pickled_encoder_is_equal(case: tuple[Encoder, Any]) -> None:
    encoder, column = case
    encoder.transform(column)

    copy = pickle.loads(pickle.dumps(encoder))

    assert copy == encoder
    assert same_bits(copy.transform(column), encoder.transform(column))


@pytest.mark.parametrize("name", CASES)
def test_an_encoder_that_has_something_to_learn_says_that_it_is_not_fitted(name: str) -> None:
    make, column = CASES[name]
    encoder = make()

    if encoder.is_fitted:
        assert encoder.fit(()) is encoder  # nothing is read
    else:
        with pytest.raises(ModelNotTrainedError, match=r"is not fitted: call encoder.fit"):
            encoder.transform(column)
        with pytest.raises(ModelNotTrainedError):
            encoder.inverse(column)
        with pytest.raises(ConfigError, match="empty"):
            encoder.fit(column[:0])
        assert not encoder.is_fitted
        unfitted = encoder_from_state(encoder.state())
        assert not unfitted.is_fitted
        assert unfitted == encoder
        assert "not fitted" in repr(encoder)


def test_a_fit_that_fails_leaves_the_encoder_as_it_was() -> None:
    encoder = ContinuousEncoder().fit(NUMBERS, fitted_on="a")
    before = encoder.state()

    with pytest.raises(ConfigError):
        encoder.fit([NUMBERS, np.full((2, 3), np.inf)])

    assert encoder.state() == before


def transformed(encoder: Encoder, column: Any) -> tuple[str, tuple[int, ...], bytes]:
    """For a process of its own."""
    result = encoder.transform(column)
    return str(result.dtype), result.shape, result.tobytes()


def load_and_transform(folder: str, column: Any) -> tuple[str, tuple[int, ...], bytes]:
    """For a process of its own."""
    return transformed(load_encoder(FileStorageConnector(folder), "fitted/encoder.json"), column)


def test_a_stored_encoder_transforms_alike_in_a_spawned_process(spawned: Pool, tmp_path: Path) -> None:
    numeric = {name: case for name, case in CASES.items() if case[0]().kind in ("features", "continuous")}
    for make, column in numeric.values():
        encoder = make().fit(column)
        save_encoder(encoder, FileStorageConnector(str(tmp_path)), "fitted/encoder.json")

        assert spawned.apply(load_and_transform, (str(tmp_path), column)) == transformed(encoder, column)
        assert spawned.apply(transformed, (encoder, column)) == transformed(encoder, column)


def test_a_damaged_stored_encoder_is_noticed() -> None:
    storage = InMemoryStorageConnector()
    save_encoder(CategoricalEncoder(categories=["cat", "dog"]), storage, "encoder")
    whole = storage.get_resource("encoder").read()

    with pytest.raises(ResourceNotFoundError):
        load_encoder(storage, "nothing")
    for damaged in (whole.replace(b"cat", b"cow"), whole[:-5], b"", b"[1]", b"\xff", b"{}", b"[" * 100_000):
        storage.set_resource("encoder", damaged)
        with pytest.raises(DatasetFileCorruptError, match="encoder"):
            load_encoder(storage, "encoder")


def damaged_states() -> list[Any]:
    """States with one thing wrong each."""
    good: dict[str, Any] = ContinuousEncoder().fit(NUMBERS).state()
    array = good["learned"]["centre"]

    def changed(**changes: Any) -> dict[str, Any]:
        return {**good, **changes}

    deep: Any = 1
    for _ in range(10_000):
        deep = [deep]
    learned = [
        [],
        {"centre": array, "scale": array, "more": array},
        {"centre": array, "scale": 0.0},
        {"centre": {"float": "nan"}, "scale": 1.0},
        {"centre": {"array": {"dtype": "O", "shape": [3], "values": [1, 2, 3]}}, "scale": array},
        {"centre": {"array": {"dtype": "<f8", "shape": [2**40], "base64": ""}}, "scale": array},
    ]
    configs = [[], {"scaling": "other"}, {"nonsense": 1}, {"scaling": {"code": "print(1)"}}, {"scaling": deep}, {"self": "x"}]
    others: list[tuple[Encoder, str, Any]] = [
        (CategoricalEncoder(categories=["a"]), "learned", {"categories": ["b"]}),
        (CategoricalEncoder(categories=["a"]), "config", {"categories": ["a", "a"]}),
        (CategoricalEncoder(categories=["a"]), "config", {"categories": {"range": [0, 10**18, 1]}}),
        (ClassMapping({1: 2}), "config", {"mapping": {"dict": [[{"dict": []}, 1]]}}),
        (ImageEncoder(0, 1), "config", {"mean": [[1.0]], "std": 1.0}),
        (ImageEncoder().fit(IMAGES), "learned", {"mean": 1.0}),
        (FeatureEncoder({0: ContinuousEncoder()}), "config", {"encoders": {"dict": [[0, "x"]]}}),
        (FeatureEncoder({0: ContinuousEncoder()}), "learned", {"rest": [1]}),
    ]
    return [
        None,
        deep,
        {},
        changed(more=1),
        *(changed(kind=kind) for kind in ("os.system", "categorical", deep)),
        *(changed(config=config) for config in configs),
        *(changed(learned=each) for each in learned),
        changed(fitted_on=7),
        changed(kind="sklearn", config={"transformer": {"sklearn": {"class": "StandardScaler"}}}),
        *({**encoder.state(), part: wrong} for encoder, part, wrong in others),
    ]


def test_a_damaged_state_is_a_config_error_and_runs_nothing() -> None:
    for state in damaged_states():
        with pytest.raises(ConfigError):
            encoder_from_state(state)


class Reversed(Encoder):
    """A client's encoder, which learns nothing."""

    kind = "reversed"

    def __init__(self, times: int = 1) -> None:
        self._times = times
        self._remember({})

    def config(self) -> dict[str, Any]:
        return {"times": self._times}

    def _transform(self, column: Any) -> Any:
        return np.array([value[::-1] * self._times for value in column], dtype=object)


def test_a_client_s_encoder_is_rebuilt_where_its_kind_is_known() -> None:
    state = FeatureEncoder({0: CategoricalEncoder(categories=[1]), 1: Reversed(2)}).state()

    with pytest.raises(ConfigError, match="there is no kind of encoder 'reversed'"):
        encoder_from_state(state)
    rebuilt = encoder_from_state(Reversed(2).state(), kinds={"reversed": Reversed})

    assert rebuilt.transform(["ab"]).tolist() == ["baba"]
    assert rebuilt.target_kind is None
    assert (rebuilt.output_size, rebuilt.output_names, rebuilt.class_names, rebuilt.unknown) == (None, None, None, "error")
    assert encoder_from_state(state, kinds={"reversed": Reversed}).state() == state
    with pytest.raises(ConfigError):
        rebuilt.inverse(["ab"])


def same_bits(first: Any, second: Any) -> bool:
    """Whether two columns are the same to the last bit."""
    if first.dtype == object:
        return bool(second.dtype == object and first.tolist() == second.tolist())
    return (first.dtype, first.shape, first.tobytes()) == (second.dtype, second.shape, second.tobytes())


def test_masked_values_and_tensors_that_numpy_cannot_hold_are_refused() -> None:
    for values in (np.ma.masked_array([1.0, 50.0], [False, True]), torch.ones(3, dtype=torch.bfloat16)):
        with pytest.raises(ConfigError, match="numpy"):
            ContinuousEncoder("none").transform(values)
