"""Stacks of 100 layers are read and pickled like short ones."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import data_stack
from data_stack.dataset.meta import MetaFactory

DEPTH = 100


def add(sample: tuple[int, ...]) -> tuple[int, ...]:
    return (sample[0] + 1,)


def add_to_batch(batch: tuple[Any, ...]) -> tuple[Any, ...]:
    return (batch[0] + 1,)


def draw(sample: tuple[int, ...], rng: np.random.Generator) -> tuple[int, ...]:
    return (sample[0] + int(rng.integers(2)),)


def mix(below: Any, number: int) -> Any:
    return below.map(draw, seed=number) if number % 3 == 0 else below.shuffle(seed=number) if number % 3 == 1 else below.map(add)


NUMBERS = data_stack.SequenceDatasetIterator([np.arange(20)])
INFORMED = data_stack.InformedDatasetIterator(
    NUMBERS, MetaFactory.get_dataset_meta(identifier="n", dataset_name="n", dataset_tag="t")
)
STACKS: dict[str, tuple[Any, Callable[[Any, int], Any], int | None]] = {
    "maps": (NUMBERS, lambda below, _: below.map(add), 5 + DEPTH),
    "batched maps": (NUMBERS, lambda below, _: below.map(add_to_batch, batched=True), 5 + DEPTH),
    "shuffles": (NUMBERS, lambda below, number: below.shuffle(seed=number), None),
    "mixed": (NUMBERS, mix, None),
    "informed": (INFORMED, mix, None),
    "combinations": (NUMBERS, lambda below, _: below.combine(NUMBERS), 5),
}


@pytest.mark.parametrize("kind", STACKS)
def test_a_stack_of_100_layers(kind: str) -> None:
    stack, grow, sixth = STACKS[kind]
    for number in range(DEPTH):
        stack = grow(stack, number)
    ten = np.arange(10)
    (column,) = stack.read_batch(ten)

    assert [sample[0] for sample in stack[ten]] == column.tolist() == [sample[0] for sample, _ in zip(stack, ten)]  # noqa: B905
    assert stack[5][0] == (column[5] if sixth is None else sixth)
    assert stack[np.arange(9, -1, -1)].read_column(0).tolist() == column[::-1].tolist()
    for again in (pickle.loads(pickle.dumps(stack)), copy.deepcopy(stack)):
        assert again.read_batch(ten)[0].tolist() == column.tolist()
        assert again.fingerprint() == stack.fingerprint()
    if kind == "informed":
        assert (again.dataset_meta.identifier, len(again.dataset_meta.provenance)) == ("n", 100)
    batches = list(data_stack.Loader(stack[ten], batch_size=10, epochs=1))
    assert np.asarray(batches[0][0]).tolist() == column.tolist()
