"""What every encoder promises: a row is a batch of 1, states are plain data, and rebuild it
anywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from torch_or_stand_in import torch

from data_stack.dataset.encoders import (
    CategoricalEncoder,
    ClassMapping,
    ContinuousEncoder,
    Encoder,
    ImageEncoder,
    OneHotEncoder,
    encoder_from_state,
    load_encoder,
    save_encoder,
)
from data_stack.exception import ConfigError, DatasetFileCorruptError, ResourceNotFoundError
from data_stack.io.storage_connectors import InMemoryStorageConnector
from data_stack.testing import EncoderContract

RNG = np.random.default_rng(7)
NUMBERS = RNG.normal(3.0, 5.0, size=(40, 3))
WORDS = np.array(["cat", "dog", "Ünï", ""] * 10, dtype=object)
IMAGES = RNG.integers(0, 256, size=(40, 5, 4, 3), dtype=np.uint8)

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
    "image": (ImageEncoder, IMAGES),
    "image_given": (lambda: ImageEncoder([0.4, 0.5, 0.6], 0.25), IMAGES),
    "one_hot": (lambda: OneHotEncoder(["", "cat", "dog", "Ünï"]), WORDS),
}


class TestEncoders(EncoderContract):
    @pytest.fixture(params=CASES)
    def case(self, request: pytest.FixtureRequest) -> tuple[Encoder, Any]:
        make, column = CASES[request.param]
        return make(), column

    @pytest.fixture
    def encoder(self, case: tuple[Encoder, Any]) -> Encoder:
        return case[0]

    @pytest.fixture
    def column(self, case: tuple[Encoder, Any]) -> Any:
        return case[1]


def test_a_fit_that_fails_leaves_the_encoder_as_it_was() -> None:
    encoder = ContinuousEncoder().fit(NUMBERS, fitted_on="a")
    before = encoder.state()

    with pytest.raises(ConfigError):
        encoder.fit([NUMBERS, np.full((2, 3), np.inf)])

    assert encoder.state() == before


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (CategoricalEncoder, {"unknown": "ignore"}),
        (CategoricalEncoder, {"output": "ordinal", "unknown": "zeros"}),
        (CategoricalEncoder, {"categories": [1, True]}),
        (CategoricalEncoder, {"categories": "a"}),
        (ImageEncoder, {"mean": 0.5}),
        (ImageEncoder, {"mean": 0.5, "std": 0.0}),
        (ImageEncoder, {"mean": [0.5, float("nan")], "std": 1}),
        (ImageEncoder, {"scale": 0}),
        (ImageEncoder, {"channels": "middle"}),
        *[
            (ClassMapping, {"mapping": mapping})
            for mapping in (
                *({(0, 1): "a", (2, True): "a"}, {(0, 0): "a"}, {"x": [1]}, {"x": (1, 2)}),
                *({(("a",),): 1}, {(): 1}, [(1, 2)]),
            )
        ],
    ],
)
def test_options_that_no_encoder_could_have_are_refused(kind: Any, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        kind(**options)


def test_a_damaged_stored_encoder_is_noticed() -> None:
    storage = InMemoryStorageConnector()
    encoder = CategoricalEncoder(categories=["cat", "dog"])
    save_encoder(encoder, storage, "encoder")
    whole = storage.get_resource("encoder").read()

    assert load_encoder(storage, "encoder") == encoder
    with pytest.raises(ResourceNotFoundError):
        load_encoder(storage, "nothing")
    for damaged in (
        whole.replace(b"cat", b"cow"),
        whole[:-5],
        b"",
        b"[1]",
        b"\xff",
        b"{}",
        b"[" * 100_000,
    ):
        storage.set_resource("encoder", damaged)
        with pytest.raises(DatasetFileCorruptError, match="encoder"):
            load_encoder(storage, "encoder")


def test_a_damaged_state_is_a_config_error_and_runs_nothing() -> None:
    good: dict[str, Any] = ContinuousEncoder().fit(NUMBERS).state()
    array = good["learned"]["centre"]
    deep: Any = 1
    for _ in range(10_000):
        deep = [deep]
    learned = [[], {"centre": array, "scale": 0.0}, {"centre": {"float": "nan"}, "scale": 1.0}]
    configs = [
        [],
        {"scaling": "other"},
        {"scaling": {"code": "print(1)"}},
        {"scaling": deep},
        {"self": "x"},
    ]
    others: list[tuple[Encoder, str, Any]] = [
        (CategoricalEncoder(categories=["a"]), "learned", {"categories": ["b"]}),
        (CategoricalEncoder(categories=["a"]), "config", {"categories": {"range": [0, 10**18, 1]}}),
        (ImageEncoder(0, 1), "config", {"mean": [[1.0]], "std": 1.0}),
    ]
    states = [
        None,
        deep,
        {},
        *({**good, "kind": kind} for kind in ("os.system", "categorical", deep)),
        *({**good, "config": config} for config in configs),
        *({**good, "learned": each} for each in learned),
        *({**encoder.state(), part: wrong} for encoder, part, wrong in others),
    ]

    for state in states:
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


def test_an_encoder_of_a_client_is_rebuilt_by_its_kind() -> None:
    state = Reversed(2).state()

    with pytest.raises(ConfigError, match="kind of encoder 'reversed'"):
        encoder_from_state(state)
    rebuilt = encoder_from_state(state, kinds={"reversed": Reversed})

    assert rebuilt.transform(["ab"]).tolist() == ["baba"]
    assert rebuilt.target_kind is None
    assert (rebuilt.output_size, rebuilt.output_names, rebuilt.class_names) == (None, None, None)
    with pytest.raises(ConfigError):
        rebuilt.inverse(["ab"])


def test_masked_values_and_tensors_that_numpy_cannot_hold_are_refused() -> None:
    for values in (
        np.ma.masked_array([1.0, 50.0], [False, True]),
        torch.ones(3, dtype=torch.bfloat16),
    ):
        with pytest.raises(ConfigError, match="numpy"):
            ContinuousEncoder("none").transform(values)
