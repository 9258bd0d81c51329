"""Encoded iterators: sample by sample, batch by batch and column by column the same, whatever
samples look like.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from layer_laws import Samples

import data_stack
from data_stack.dataset.encoders import (
    CategoricalEncoder,
    ClassMapping,
    ContinuousEncoder,
    EncodingError,
    ImageEncoder,
    OneHotEncoder,
)
from data_stack.dataset.iterator import (
    DatasetIteratorIF,
    InformedDatasetIterator,
    InformedDatasetIteratorIF,
    SequenceDatasetIterator,
)
from data_stack.dataset.iterator.layers.encoded import EncodedDatasetIterator
from data_stack.dataset.meta import DatasetMeta, IteratorMeta
from data_stack.exception import ModelNotTrainedError
from data_stack.testing import DatasetIteratorContract
from data_stack.testing.comparing import assert_same

N = 12
RNG = np.random.default_rng(2)
NUMBERS = RNG.normal(size=(N, 3))
LABELS = np.arange(N) % 3
WORDS = [["cat", "dog", "bird"][i % 3] for i in range(N)]
IMAGES = RNG.integers(0, 256, size=(N, 4, 5), dtype=np.uint8)
RAGGED = [IMAGES[i, : 2 + i % 2] for i in range(N)]


STACKS: dict[str, Callable[[], DatasetIteratorIF]] = {
    "ragged_images": lambda: fitted(SequenceDatasetIterator([RAGGED, LABELS]), {0: ImageEncoder()}),
    "dicts": lambda: fitted(
        Samples([{"x": x, "y": y} for x, y in zip(NUMBERS, WORDS, strict=True)]),
        {"x": ContinuousEncoder(), "y": CategoricalEncoder("ordinal")},
    ),
    "mapped_to_words": lambda: SequenceDatasetIterator([NUMBERS, LABELS]).map_classes(
        {(0, 1): "low"}
    ),
    "dropped": lambda: SequenceDatasetIterator([NUMBERS, LABELS]).map_classes(
        ClassMapping({1: 0, 2: 1}, unmapped="drop")
    ),
    "parts": lambda: fitted(
        SequenceDatasetIterator([NUMBERS[:5], LABELS[:5]]).combine(
            Samples(list(zip(NUMBERS[5:], LABELS[5:], strict=True)))
        ),
        {0: ContinuousEncoder(), 1: CategoricalEncoder()},
    ),
}


def fitted(iterator: DatasetIteratorIF, encoders: Any) -> DatasetIteratorIF:
    """Encoded, and fitted on itself."""
    return iterator.encode(encoders, fit_on=iterator)


class TestStacks(DatasetIteratorContract):
    @pytest.fixture(params=STACKS)
    def iterator(self, request: pytest.FixtureRequest) -> DatasetIteratorIF:
        return STACKS[request.param]()

    @pytest.fixture
    def expected(self, iterator: DatasetIteratorIF) -> list[Any]:
        return [iterator[position] for position in range(len(iterator))]


# ---------------------------------------------------------------------- fitting


def test_an_unfitted_encoder_needs_an_iterator_to_fit_on() -> None:
    iterator = SequenceDatasetIterator([NUMBERS, LABELS])

    with pytest.raises(ModelNotTrainedError, match=r"column 0 \(<ContinuousEncoder.*fit_on=train"):
        iterator.encode({0: ContinuousEncoder(), 1: OneHotEncoder([0, 1, 2])})
    with pytest.raises(ModelNotTrainedError, match=r"column 1 \(<CategoricalEncoder.*fit_on=train"):
        EncodedDatasetIterator(iterator, {1: CategoricalEncoder()})


# ---------------------------------------------------------------------- reading


def test_an_unknown_value_is_named_with_column_and_position() -> None:
    train = SequenceDatasetIterator([list("abab"), WORDS[:4]])
    encoders: dict[int | str, Any] = {0: CategoricalEncoder(), 1: CategoricalEncoder()}
    fitted(train, encoders)
    other = SequenceDatasetIterator([list("abaz"), [*WORDS[:3], "cow"]]).encode(encoders)

    for read in (
        lambda: other[3],
        lambda: other.read_batch([2, 3]),
        lambda: other.read_column(0, [0, 3]),
        lambda: list(other),
    ):
        with pytest.raises(
            EncodingError,
            match=r"^column 0: at position 3, 'z' is an unknown category: known are 'a'",
        ) as caught:
            read()
        assert caught.value.position == 3
    with pytest.raises(
        EncodingError, match=r"^column 1: at position 3, 'cow' is an unknown category"
    ):
        other.read_column(1, [0, 3])
    assert pickle.loads(pickle.dumps(caught.value)).args == caught.value.args


# ---------------------------------------------------------------------- meta


def informed(**meta: Any) -> InformedDatasetIterator:
    """Dict samples with their meta."""
    samples = Samples([{"x": row, "y": word} for row, word in zip(NUMBERS, WORDS, strict=True)])
    return InformedDatasetIterator(
        samples, DatasetMeta(IteratorMeta("x", "y", "y"), dataset_name="zoo", **meta)
    )


def meta_of(iterator: DatasetIteratorIF) -> Any:
    assert isinstance(iterator, InformedDatasetIteratorIF)
    return iterator.dataset_meta


@pytest.mark.parametrize(
    ("encoder", "kind", "names"),
    [
        (CategoricalEncoder("ordinal"), "label", ("bird", "cat", "dog")),
        (CategoricalEncoder(unknown="index"), "one_hot", ("bird", "cat", "dog", None)),
        (ClassMapping({("cat", "dog"): "pet"}), "label", None),
        (ContinuousEncoder("none"), "real", None),
    ],
)
def test_the_meta_says_what_targets_are_after_an_encoding(
    encoder: Any, kind: str, names: Any
) -> None:
    stack = fitted(
        informed(target_kind="label", class_names=("cat", "dog", "bird")), {"y": encoder}
    )

    meta = meta_of(stack)

    assert (meta.target_kind, meta.class_names) == (kind, names)
    assert meta_of(stack.take(3)).class_names == names


def test_a_recipe_rebuilds_encoded_stacks_with_what_was_learned() -> None:
    source = InformedDatasetIterator(
        SequenceDatasetIterator([NUMBERS, WORDS]), DatasetMeta(dataset_name="zoo")
    )
    encoder = ContinuousEncoder()
    mapping = ClassMapping({"cat": 0, "dog": 1}, unmapped="drop")
    stack = fitted(source, encoder).map_classes(mapping).one_hot(OneHotEncoder(mapping).categories)

    rebuilt = data_stack.from_recipe(json.loads(json.dumps(stack.recipe())))

    assert stack.recipe()["reproducible"]
    assert_same(list(rebuilt), list(stack))
    assert rebuilt.fingerprint() == stack.fingerprint()
    assert meta_of(rebuilt) == meta_of(stack)
