from __future__ import annotations

import pickle

import numpy as np
import pytest

from data_stack.dataset.randomness.seeds import derive_generator


@pytest.mark.parametrize(("seed", "index"), [(5, 0), (2**64 - 1, 7), (123_456_789_123, 2**40)])
def test_a_derived_generator_draws_what_philox_draws_for_its_key(seed: int, index: int) -> None:
    generator, philox = derive_generator(seed, index), np.random.Generator(np.random.Philox(key=(index << 64) | seed))
    np.testing.assert_array_equal(generator.integers(0, 2**63, 100), philox.integers(0, 2**63, 100))
    assert pickle.loads(pickle.dumps(generator)).random() == generator.random()


def test_children_of_a_derived_generator_depend_on_its_seed_and_index_alone() -> None:
    draws = [[child.random() for child in derive_generator(5, index).spawn(2)] for index in (3, 3, 4)]
    assert draws[0] == draws[1]
    assert len({*draws[0], *draws[2]}) == 4
    generator = derive_generator(5, 3)
    assert generator.spawn(1)[0].random() != generator.spawn(1)[0].random()
