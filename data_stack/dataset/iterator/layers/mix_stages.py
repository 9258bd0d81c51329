"""The stages of a mix, each with its proportions, as a user states them."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Union

import numpy as np

from data_stack.dataset.iterator.layers.mix_sources import Sources
from data_stack.dataset.positions import check_integer
from data_stack.exception import ConfigError

Proportions = Union[Sequence[float], Mapping[str, float]]
"""A number for each source: in their order, or by their names."""

#: The smallest share of a source is 1 divided by this number, so that blocks stay small.
_MAX_BLOCK_SIZE = 1 << 20

#: Digits of proportions that are made of sizes. The last digits of a power differ from one
#: machine to another.
_N_DIGITS = 6


@dataclass(frozen=True)
class Stage:
    """Proportions that hold from a sample on.

    Attributes:
        start: the number of the first sample, from 0.
        numbers: the proportion of each source as it was given.
        shares: the share of each source in all samples; their sum is 1.
    """

    start: int
    numbers: Sequence[int | float]
    shares: Sequence[Fraction]

    @property
    def block_size(self) -> int:
        """The number of samples of the smallest block in which each source has a turn."""
        return find_block_size(self.shares)


def find_block_size(shares: Sequence[Fraction]) -> int:
    """Return the size of the smallest block in which each source with a share has a turn."""
    return math.ceil(1 / min(share for share in shares if share))


def parse_stages(
    sources: Sources, proportions: Any, schedule: Any, temperature: Any
) -> list[Stage]:
    """Return the stages of a mix, the first one at sample 0.

    Raises:
        ConfigError: there are no proportions for sample 0, or two; stages are not in order;
            proportions are not allowed; or a source with a share is empty.
    """
    later = _parse_schedule(schedule)
    given: list[tuple[int, Any]] = []
    if temperature is not None:
        given.append((0, _proportions_of_sizes(sources.lengths, temperature)))
    if proportions is not None:
        given.append((0, proportions))
    given.extend(later)
    starts = [start for start, _ in given]
    if not starts or starts[0] != 0:
        raise ConfigError(
            "a mix needs proportions=, temperature=, or a schedule= that begins at sample 0"
        )
    if any(start >= next_start for start, next_start in itertools.pairwise(starts)):
        raise ConfigError(
            f"each stage of a mix begins after the one before, got stages that begin at the "
            f"samples {starts}; proportions= and temperature= begin at 0"
        )
    return [_parse_stage(sources, start, stated) for start, stated in given]


def _parse_schedule(schedule: Any) -> list[tuple[int, Any]]:
    try:
        pairs = [(start, proportions) for start, proportions in schedule]
    except (TypeError, ValueError):
        raise ConfigError(
            f"schedule= is a list of pairs, [(1_000_000, [0.5, 0.5])], got {schedule!r:.200}"
        ) from None
    name = "the first sample of a stage of a mix"
    return [(check_integer(name, start, at_least=0), proportions) for start, proportions in pairs]


def _parse_stage(sources: Sources, start: int, stated: Any) -> Stage:
    if isinstance(stated, Mapping):
        stated = sources.in_order("proportions", stated, 0)
    numbers = _check_proportions(stated, len(sources.lengths))
    shares = _find_shares(numbers)
    for name, share, length in zip(sources.names, shares, sources.lengths, strict=True):
        if share and not length:
            raise ConfigError(f"iterator {name} is empty; leave it out, or set its proportion to 0")
    return Stage(start, numbers, shares)


def _proportions_of_sizes(lengths: Sequence[int], temperature: Any) -> list[float]:
    """Return a proportion for each source: its size to the power of 1 / temperature.

    Raises:
        ConfigError: ``temperature`` is not a positive number.
    """
    try:
        number = float(_as_number(temperature))
    except (TypeError, ValueError):
        number = math.nan
    if not 0 < number < math.inf:
        raise ConfigError(f"temperature must be a positive number, got {temperature!r:.80}")
    largest = max(lengths, default=0)
    powers = [(length / largest) ** (1 / number) if length else 0.0 for length in lengths]
    return [float(f"{power:.{_N_DIGITS}g}") for power in powers]


def _check_proportions(given: Any, n_parts: int) -> list[int | float]:
    """Return proportions as plain numbers.

    Raises:
        ConfigError: they are not a number for each part, or one is not allowed.
    """
    try:
        numbers = [_as_number(proportion) for proportion in given]
    except (TypeError, ValueError):
        raise ConfigError(
            f"proportions are a list of numbers, one for each iterator, got {given!r:.80}"
        ) from None
    are_allowed = all(0 <= number < math.inf for number in numbers) and any(numbers)
    if len(numbers) != n_parts or not are_allowed:
        raise ConfigError(
            f"proportions must be {n_parts} finite numbers, none negative and one of them "
            f"positive, got {numbers}"
        )
    return numbers


def _as_number(value: Any) -> int | float:
    """Return a number of any library as Python's.

    Raises:
        TypeError or ValueError: it is no number, or a truth value.
    """
    if isinstance(value, (bool, np.bool_)):
        raise TypeError("a truth value is no number")
    try:
        return operator.index(value)
    except TypeError:
        # It is no integer. Tensors and arrays of floats have an __index__ that refuses.
        pass
    if isinstance(value, np.floating):
        return float(str(value))  # the decimal number that numpy shows
    return float(value)


def _find_shares(proportions: Sequence[int | float]) -> list[Fraction]:
    """Return proportions as exact shares of their sum; a float means the decimal number shown.

    Raises:
        ConfigError: one is too small a share.
    """
    exact = [Fraction(repr(proportion)) for proportion in proportions]
    total = sum(exact)
    shares = [proportion / total for proportion in exact]
    smallest = min(share for share in shares if share)
    if smallest < Fraction(1, _MAX_BLOCK_SIZE):
        raise ConfigError(
            f"the smallest proportion is less than a {_MAX_BLOCK_SIZE:,}th of the sum of all, "
            f"{list(proportions)}; increase it"
        )
    return shares
