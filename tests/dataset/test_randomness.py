"""Orders and numbers that a key decides: bijections, the same for ever, and as good as drawn."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from data_stack.dataset.hashing import hash_array, hash_of, high_product_array
from data_stack.dataset.permutation import KeyedPermutation, permute_array
from data_stack.dataset.randomness import (
    Draw,
    check_draw,
    check_n_drawn,
    derive_generator,
    derive_seed,
)
from data_stack.exception import ConfigError

KEYS = st.integers(0, 2**64 - 1)
SIZES = (
    st.integers(1, 80)
    | st.integers(1, 2**63 - 1)
    | st.sampled_from([4095, 4096, 4097, 65535, 65536, 65537, 2**31, 2**62])
)
BOUNDARIES = [0, 1, 2, 3, 15, 16, 17, 18, 63, 64, 65, 4096, 4097, 65536, 65537, 66049, 66050]


def indices_below(n: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, n - 1), min_size=1, max_size=20)


# --- bijections -----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", BOUNDARIES)
def test_every_position_comes_once(n: int) -> None:
    order = KeyedPermutation(n, 7)
    positions = order.take(np.arange(n)).tolist()  # by tables of the rounds, if n is large

    assert sorted(positions) == list(range(n))
    assert [order.at(index) for index in range(0, n, 1 + n // 40)] == positions[:: 1 + n // 40]


@given(data=st.data(), n=SIZES, key=KEYS)
def test_one_position_and_many_agree(data: st.DataObject, n: int, key: int) -> None:
    order = KeyedPermutation(n, key)
    indices = data.draw(indices_below(n))

    positions = order.take(np.array(indices))

    assert [order.at(index) for index in indices] == positions.tolist()
    assert all(0 <= position < n for position in positions.tolist())


@pytest.mark.parametrize("n", [65_537, 66_049, 90_000])
def test_single_positions_are_the_same_once_rounds_are_tabulated(n: int) -> None:
    order = KeyedPermutation(n, 7)
    by_rounds = [order.at(index) for index in range(100)]  # too few to make tables for

    one_by_one = [order.at(index) for index in range(n)]

    assert one_by_one[:100] == by_rounds
    assert sorted(one_by_one) == list(range(n))


# --- the same for ever: never change these numbers ------------------------------------------------


@pytest.mark.parametrize("n", [1, 16, 17, 8191, 8192, 8193, 65_536])
def test_an_order_that_is_kept_is_the_computed_one(n: int) -> None:
    places = np.arange(n)

    assert np.array_equal(KeyedPermutation(n, 7).take(places), permute_array(n, 7, places))


def test_hashes_are_those_of_splitmix64() -> None:
    # the generator's published first outputs for the seed 1234567,
    # https://rosettacode.org/wiki/Pseudo-random_numbers/Splitmix64
    first = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    assert [hash_of(1234567, index) for index in range(5)] == first


GOLDEN = {
    1: [0],
    16: [9, 11, 12, 1, 13, 3, 0, 4, 7, 15],
    17: [0, 8, 11, 6, 13, 2, 5, 12, 15, 1],
    100: [65, 98, 73, 21, 64, 36, 33, 94, 72, 26],
    4097: [1094, 990, 1818, 692, 350, 639, 3336, 249, 846, 184],
    65537: [9239, 53806, 47535, 37287, 59325, 58988, 23221, 5488, 65190, 57282],
    1000000: [34938, 123239, 660514, 16086, 538188, 905166, 178465, 179381, 367020, 220630],
    4611686018427387904: [
        662020150303939085,
        2901299532918237993,
        1467570096255095193,
        2240867401755478029,
    ],
}


@pytest.mark.parametrize("n", list(GOLDEN))
def test_orders_never_change(n: int) -> None:
    assert list(map(KeyedPermutation(n, 0x0123456789ABCDEF).at, range(len(GOLDEN[n])))) == GOLDEN[n]


# --- numbers --------------------------------------------------------------------------------------


@given(key=KEYS, indices=st.lists(st.integers(0, 2**64 - 1), max_size=20))
def test_hashes_of_one_index_and_of_many_agree(key: int, indices: list[int]) -> None:
    array = np.array(indices, dtype=np.uint64)

    assert hash_array(key, array).tolist() == [hash_of(key, index) for index in indices]
    assert hash_array(array, np.full(len(array), 5)).tolist() == [
        hash_of(each, 5) for each in indices
    ]


@given(pairs=st.lists(st.tuples(KEYS, KEYS), min_size=1, max_size=20))
@example(pairs=[(2**64 - 1, 2**64 - 1), (2**32, 2**32), (2**32 - 1, 2**64 - 1), (0, 2**64 - 1)])
def test_the_upper_half_of_a_product_is_exact(pairs: list[tuple[int, int]]) -> None:
    factors, others = (np.array(column, dtype=np.uint64) for column in zip(*pairs, strict=True))

    exact = [(a * b) >> 64 for a, b in pairs]
    assert high_product_array(factors, others).tolist() == exact


# --- generators -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("seed", "index"), [(5, 0), (2**64 - 1, 7), (123_456_789_123, 2**40)])
def test_a_derived_generator_draws_what_philox_draws_for_its_key(seed: int, index: int) -> None:
    generator, philox = (
        derive_generator(seed, index),
        np.random.Generator(np.random.Philox(key=(index << 64) | seed)),
    )
    np.testing.assert_array_equal(generator.integers(0, 2**63, 100), philox.integers(0, 2**63, 100))
    assert pickle.loads(pickle.dumps(generator)).random() == generator.random()


def test_children_of_a_generator_depend_on_seed_and_index() -> None:
    draws = [
        [child.random() for child in derive_generator(5, index).spawn(2)] for index in (3, 3, 4)
    ]
    assert draws[0] == draws[1]
    assert len({*draws[0], *draws[2]}) == 4
    generator = derive_generator(5, 3)
    assert generator.spawn(1)[0].random() != generator.spawn(1)[0].random()


# --- draws of layers ------------------------------------------------------------------------------


def test_a_draw_holds_plain_integers_and_their_key() -> None:
    draw = check_draw("shuffled", np.int64(3), np.uint8(2))

    assert draw == Draw(3, 2, derive_seed("shuffled", 3, 2))
    assert (type(draw.seed), type(draw.epoch)) == (int, int)


def test_draws_of_other_layers_and_epochs_have_other_keys() -> None:
    draws = [
        check_draw("shuffled", 3, 0),
        check_draw("mixed", 3, 0),
        check_draw("shuffled", 3, 1),
        check_draw("shuffled", 4, 0),
    ]

    assert len({draw.key for draw in draws}) == 4


def test_seeds_epochs_and_numbers_must_be_integers() -> None:
    with pytest.raises(ConfigError, match="the seed of a mixed iterator"):
        check_draw("mixed", 0.5, 0)
    with pytest.raises(ConfigError, match="the epoch of a mixed iterator must be at least 0"):
        check_draw("mixed", 0, -1)
    with pytest.raises(ConfigError, match="the n_samples of a mixed iterator"):
        check_n_drawn("mixed", -1)
    assert check_n_drawn("mixed", None) is None
    assert check_n_drawn("mixed", np.int8(5)) == 5
