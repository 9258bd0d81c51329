"""Reads what samples cost of a budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.access import SampleAccess
from data_stack.dataset.iterator.access_of_iterator import access_to
from data_stack.dataset.iterator.blocks import in_blocks
from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.dataset.meta import column_key
from data_stack.exception import ConfigError
from data_stack.loader.budgets.budget import MAX_BUDGET, Cost
from data_stack.loader.loading_errors import describe_sample
from data_stack.values.stacked_values import exact_array

Costs = npt.NDArray[np.unsignedinteger[Any]]
"""The cost of each sample, shape ``(n_samples,)``, in the smallest dtype that holds them."""


def is_column(cost: Cost) -> bool:
    """Return whether a cost is the name or position of a column."""
    return isinstance(cost, (str, int, np.integer)) and not isinstance(cost, bool)


def read_costs(iterator: DatasetIteratorIF, cost: Cost) -> Costs:
    """Return what each sample of an iterator costs.

    Args:
        iterator: the samples.
        cost: see :class:`~data_stack.loader.budgets.budget.Budget`.

    Raises:
        ConfigError: a cost is missing, is no integer, or is out of range; or there is no such
            column.
    """
    if is_column(cost):
        return _read_column(iterator, cost)
    if callable(cost):
        return _call_function(iterator, cost)
    return _check_array(cost, len(iterator))


def narrow_costs(costs: npt.NDArray[Any]) -> Costs:
    """Return costs in the smallest dtype that holds them, read-only."""
    largest = int(costs.max(initial=0))
    narrow: Costs = costs.astype(np.min_scalar_type(largest))
    narrow.setflags(write=False)
    return narrow


# ---------------------------------------------------------------------- an array


def _check_array(cost: Any, n_samples: int) -> Costs:
    """Return the costs that the caller has passed.

    Raises:
        ConfigError: they are not one integer of at least 0 for each sample.
    """
    try:
        costs: npt.NDArray[Any] = np.asarray(cost)
    except ValueError as error:  # a list of lists of different lengths
        raise ConfigError(
            f"cost must be a column, a function, or one integer for each sample, got {cost!r:.80}"
        ) from error
    is_of_integers = costs.dtype.kind in "iu" or costs.size == 0
    if costs.ndim != 1 or not is_of_integers:
        raise ConfigError(
            "cost must be a column, a function, or one integer for each sample, got an array of "
            f"{costs.dtype} of shape {costs.shape}; round seconds to integers, such as "
            "milliseconds, and the budget to the same unit"
        )
    if len(costs) != n_samples:
        raise ConfigError(
            f"cost has {len(costs):,} integers, but the iterator has {n_samples:,} samples: pass "
            "the costs of this iterator"
        )
    _check_range_of_all(costs, 0)
    return narrow_costs(costs)


def _check_range_of_all(costs: npt.NDArray[Any], start: int) -> None:
    """Check the costs of the samples from ``start`` on, as :func:`_check_range` does."""
    if len(costs) == 0:
        return
    for place in (int(costs.argmin()), int(costs.argmax())):
        _check_range(int(costs[place]), start + place)


def _check_range(cost: int, position: int) -> None:
    """Check that a cost can be counted.

    Raises:
        ConfigError: it is negative or too large.
    """
    if not 0 <= cost <= MAX_BUDGET:
        raise ConfigError(
            f"the cost of sample {position} is {cost}; valid range: 0 to {MAX_BUDGET}"
        )


# ---------------------------------------------------------------------- a column


def _read_column(iterator: DatasetIteratorIF, cost: Any) -> Costs:
    """Return the numbers of a column, or the lengths of its values.

    Raises:
        ConfigError: there is no such column, or its values are neither.
    """
    samples = access_to(iterator)
    key = column_key(iterator, cost)
    costs = np.zeros(samples.n_samples, dtype=np.int64)
    are_lengths: bool | None = None

    def read(positions: npt.NDArray[np.intp]) -> Any:
        (column,) = samples.columns([key], positions)
        return column

    for start, values in in_blocks(samples.n_samples, read):
        block = _costs_of_block(values, cost, start, samples)
        if are_lengths is None:
            are_lengths = block.are_lengths
        if are_lengths != block.are_lengths:
            raise _mixed_column_error(cost)
        costs[start : start + len(values)] = block.costs
    return narrow_costs(costs)


@dataclass(frozen=True, slots=True)
class _CostsOfBlock:
    """The costs of some neighbouring samples.

    Attributes:
        costs: integers, shape ``(n,)``.
        are_lengths: whether they are lengths of values.
    """

    costs: Sequence[int] | npt.NDArray[Any]
    are_lengths: bool


def _costs_of_block(values: Any, column: Any, start: int, samples: SampleAccess) -> _CostsOfBlock:
    """Return the costs of the values of a column, from sample ``start`` on."""
    # Numbers, and arrays of one length, come as one array.
    is_array_of_numbers = isinstance(values, np.ndarray) and values.dtype.kind in "biufc"
    if is_array_of_numbers and values.ndim > 1:
        return _CostsOfBlock(np.full(len(values), values.shape[1], np.int64), are_lengths=True)
    is_array_of_integers = is_array_of_numbers and values.dtype.kind in "iu"
    if is_array_of_integers:
        _check_range_of_all(values, start)
        return _CostsOfBlock(values, are_lengths=False)

    # Other values are looked at one by one.
    costs = []
    are_lengths = set()
    for place, value in enumerate(values):
        length = _length_of(value)
        if length is not None:
            costs.append(length)
            are_lengths.add(True)
            continue
        number = _integer_of(value)
        if number is None:
            raise _value_error(column, value, start + place, samples)
        _check_range(number, start + place)
        costs.append(number)
        are_lengths.add(False)
    if len(are_lengths) > 1:
        raise _mixed_column_error(column)
    return _CostsOfBlock(costs, are_lengths=are_lengths.pop())


def _length_of(value: Any) -> int | None:
    """Return the length of a list, array or tensor; None for other values."""
    if isinstance(value, (list, tuple)):
        return len(value)
    shape: tuple[Any, ...] = getattr(value, "shape", ())
    return int(shape[0]) if len(shape) > 0 else None


def _integer_of(value: Any) -> int | None:
    """Return an integer of any library as Python's; None for other values."""
    array = exact_array(value)
    if array is None or array.ndim > 0 or array.dtype.kind not in "iu":
        return None
    return int(array)


def _mixed_column_error(column: Any) -> ConfigError:
    return ConfigError(
        f"column {column!r} has numbers and arrays: as cost= it needs either the cost of each "
        "sample, or arrays and lists, which cost their lengths"
    )


def _value_error(column: Any, value: Any, position: int, samples: SampleAccess) -> ConfigError:
    """Return the error for a value that is no cost."""
    sample = describe_sample(samples, position)
    if isinstance(value, (str, bytes)):
        return ConfigError(
            f"column {column!r} of {sample} is text, whose number of characters is not its number "
            "of tokens: pass the column of tokens, or a function of a sample that counts, "
            "cost=lambda sample: …"
        )
    if isinstance(value, (float, np.floating)):
        return ConfigError(
            f"column {column!r} of {sample} is {float(value)}, and costs are integers: pass a "
            "function of a sample that rounds, such as one that returns milliseconds for seconds"
        )
    return ConfigError(
        f"column {column!r} of {sample} is no cost: expected an integer, an array or a list of "
        f"numbers, got {value!r:.60}"
    )


# ---------------------------------------------------------------------- a function


def _call_function(iterator: DatasetIteratorIF, function: Callable[[Any], Any]) -> Costs:
    """Return what a function returns for each sample.

    Raises:
        ConfigError: it fails, or does not return an integer of at least 0.
    """
    samples = access_to(iterator)
    costs = np.zeros(samples.n_samples, dtype=np.int64)
    for start, block in in_blocks(samples.n_samples, samples.samples):
        for position, sample in enumerate(block, start):
            costs[position] = _call_for_sample(function, sample, position, samples)
    return narrow_costs(costs)


def _call_for_sample(
    function: Callable[[Any], Any], sample: Any, position: int, samples: SampleAccess
) -> int:
    try:
        value = function(sample)
    except Exception as error:
        raise ConfigError(
            f"the function of cost= failed for {describe_sample(samples, position)}: "
            f"{type(error).__name__}: {error}"
        ) from error
    cost = _integer_of(value)
    if cost is None:
        raise ConfigError(
            f"the function of cost= must return an integer, got {value!r:.60} for "
            f"{describe_sample(samples, position)}"
        )
    _check_range(cost, position)
    return cost
