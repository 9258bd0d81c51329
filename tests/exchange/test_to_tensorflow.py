"""Datasets as tf.data. Without TensorFlow the tests are skipped: `make test-all` has it."""

from __future__ import annotations

import numpy as np
import pytest

import data_stack

pytest.importorskip("tensorflow", reason="tensorflow is not installed: `make test-all` brings it")


def test_samples_of_tensorflow_have_the_values_in_order() -> None:
    stack = data_stack.from_numpy({"x": np.arange(10), "y": np.zeros((10, 2), np.float32)})

    samples = list(stack.to_tensorflow())

    assert [int(sample["x"]) for sample in samples] == list(range(10))


def test_batches_of_tensorflow_have_the_batch_size() -> None:
    stack = data_stack.from_numpy({"x": np.arange(10), "y": np.zeros((10, 2), np.float32)})

    batches = list(stack.to_tensorflow(batch_size=4, shuffle=True, seed=1))

    assert [batch["y"].shape.as_list() for batch in batches] == [[4, 2], [4, 2], [2, 2]]
