"""Batches of a loader as JAX arrays. Without JAX the tests are skipped: `make test-all` brings
it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from free_ports import free_port
from loader_batches import beginning_at, rows_and_numbers

jax = pytest.importorskip("jax", reason="jax is not installed: `make test-all` brings it")

from data_stack.dataset.iterator import SequenceDatasetIterator  # noqa: E402  # behind the line that may skip this module
from data_stack.exception import ConfigError  # noqa: E402  # likewise
from data_stack.loader import Concatenated, Loader, Ragged  # noqa: E402  # likewise


def of_one_batch(value: Any, device: Any = None) -> Any:
    """What JAX gets of a batch."""
    (converted,) = Loader(
        rows_and_numbers(2), 2, worker_kind="inline", transform=lambda _: value
    ).jax(device=device)
    return converted


def test_an_aligned_array_is_not_copied_on_the_cpu() -> None:
    aligned, other = beginning_at(0), beginning_at(16)

    first, second = of_one_batch((aligned, other), device=jax.devices("cpu")[0])

    assert first.unsafe_buffer_pointer() == aligned.ctypes.data
    assert second.unsafe_buffer_pointer() != other.ctypes.data


DTYPES = ["?", "u1", "i4", "f2", "f4", "c8", ">i2"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_numbers_have_their_dtype_and_values(dtype: str) -> None:
    array = np.arange(12).reshape(4, 3).astype(dtype)

    converted = of_one_batch(
        {
            "x": array,
            "backwards": array[::-1],
            "one": array[0, 0],
            "0-d": np.array(array[1, 1]),
            "none": array[:0],
        }
    )

    assert converted["x"].dtype == array.dtype.newbyteorder("=")
    assert converted["x"].tolist() == array.tolist()
    assert converted["backwards"].tolist() == array[::-1].tolist()
    assert (converted["one"].tolist(), converted["0-d"].tolist()) == (
        array[0, 0].tolist(),
        array[1, 1].tolist(),
    )
    assert (converted["none"].shape, converted["none"].dtype) == ((0, 3), converted["x"].dtype)


NARROW = [
    (np.array([2**31 - 1, -(2**31)]), "int32"),
    (np.array([2**32 - 1], np.uint64), "uint32"),
    (np.array([0.1, np.inf, np.nan, 3e38]), "float32"),
    (np.array([1 + 0.1j]), "complex64"),
]
BEYOND: list[tuple[Any, str]] = [
    (np.array([5, 2**31]), "2147483648 "),
    (np.array([-(2**31) - 1]), "-2147483649 "),
    (np.array([2**63 + 1], np.uint64), "9223372036854775809 "),
    (np.array([1.0, 1e300]), r"1e\+300 "),
    (np.array([1e300j]), r"1e\+300j"),
    (np.array([2**40])[0], "1099511627776 "),
    (np.array([2**40], ">i8"), "1099511627776 "),
]


@pytest.mark.parametrize(("array", "dtype"), NARROW)
def test_numbers_of_64_bits_that_fit_have_32(array: Any, dtype: str) -> None:
    converted = of_one_batch({"x": array})["x"]

    assert converted.dtype == dtype
    np.testing.assert_array_equal(np.asarray(converted), array.astype(dtype))


@pytest.mark.parametrize(("array", "number"), BEYOND)
def test_numbers_that_jax_would_wrap_are_refused(array: Any, number: str) -> None:
    with pytest.raises(ConfigError, match=f"{number}.*jax_enable_x64"):
        of_one_batch({"x": array})


def test_the_refused_column_is_named() -> None:
    beyond = np.array([2**40, 1])

    with pytest.raises(ConfigError, match="column 'id' cannot"):
        of_one_batch({"y": np.zeros(2), "id": beyond})
    with pytest.raises(ConfigError, match="column 1 cannot"):
        of_one_batch((np.zeros(2), beyond))
    with pytest.raises(ConfigError, match="a value of the batch cannot"):
        of_one_batch([{"deep": beyond}])


@pytest.fixture
def _with_64_bits() -> Iterator[None]:
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


@pytest.mark.usefixtures("_with_64_bits")
def test_numbers_of_64_bits_stay_where_jax_has_them() -> None:
    converted = of_one_batch({"x": np.array([2**40, -(2**63)])})["x"]

    assert converted.dtype == "int64"
    assert converted.tolist() == [2**40, -(2**63)]


def test_what_jax_has_no_arrays_for_stays_a_list() -> None:
    iterator = SequenceDatasetIterator(
        [
            ["a", "b", "c"],
            [np.zeros(i, np.float32) for i in range(3)],
            [{"x": i, "name": str(i)} for i in range(3)],
            [(i, None) for i in range(3)],
            [None, 1, "x"],
            np.array(["2020-01-01"] * 3, dtype="M8[D]"),
            np.array(["x", "yz", ""]),
            np.ones(3, dtype=np.longdouble),
        ]
    )

    ((strings, ragged, dicts, tuples, mixed, dates, other_strings, long),) = Loader(
        iterator, 3, worker_kind="inline"
    ).jax()

    assert strings == ["a", "b", "c"]
    assert [(type(row) is not np.ndarray, row.shape) for row in ragged] == [
        (True, (0,)),
        (True, (1,)),
        (True, (2,)),
    ]
    assert (dicts["x"].tolist(), dicts["name"]) == ([0, 1, 2], ["0", "1", "2"])
    assert (tuples[0].tolist(), tuples[1]) == ([0, 1, 2], [None, None, None])
    assert (mixed, dates) == ([None, 1, "x"], [np.datetime64("2020-01-01")] * 3)
    assert (other_strings, long) == (["x", "yz", ""], [1.0, 1.0, 1.0])


def test_ragged_columns_go_through_compiled_functions() -> None:
    rows = [np.arange(length, dtype=np.float32) for length in (3, 0, 2)]
    loader = Loader(
        SequenceDatasetIterator([rows, np.arange(3)]),
        3,
        worker_kind="inline",
        collate=Concatenated(columns=0),
    )
    ((ragged, _),) = loader.jax()

    doubled = jax.jit(lambda batch: jax.tree_util.tree_map(lambda array: array * 2, batch))(ragged)

    assert isinstance(doubled, Ragged)
    assert (doubled.values.tolist(), doubled.offsets.tolist()) == ([0, 2, 4, 0, 2], [0, 6, 6, 10])
    assert isinstance(ragged.values, jax.Array)


RANK = """
import sys, jax
from data_stack.loader import Loader
jax.distributed.initialize(sys.argv[1], num_processes=2, process_id=int(sys.argv[2]), local_device_ids=[0])
print(Loader(range(10), 2, shard="auto").shard)
"""


def test_the_ranks_of_jax_are_those_of_a_loader() -> None:
    coordinator = f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-c", RANK, coordinator]
    ranks = [
        subprocess.Popen([*command, str(rank)], stdout=subprocess.PIPE, text=True)
        for rank in range(2)
    ]

    assert [rank.communicate(timeout=120)[0].splitlines()[-1] for rank in ranks] == [
        "(0, 2)",
        "(1, 2)",
    ]
