"""The sources of a mix, and the stages of their proportions, as a user states them."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Union

import numpy as np

from data_stack.dataset.positions import check_integer
from data_stack.exception import ConfigError
from data_stack.util.suggestions import did_you_mean

Proportions = Union[Sequence[float], Mapping[str, float]]
"""A number for each source: in their order, or by their names."""

#: The smallest share of a source is 1 divided by this number, so that blocks stay small.
_MAX_BLOCK_SIZE = 1 << 20

#: The largest number of samples that mixes may have had of a source before. Positions are of 64
#: bits, so that this leaves room for the samples of the mix.
MAX_CONSUMED = 1 << 62

#: Digits of proportions that are made of sizes. The last digits of a power differ from one
#: machine to another.
_N_DIGITS = 6


@dataclass(frozen=True)
class Sources:
    """What is mixed.

    Attributes:
        lengths: how many samples each source has.
        names: the name of each source; its number where the user gave no names.
        are_named: whether the user gave names.
    """

    lengths: Sequence[int]
    names: Sequence[str]
    are_named: bool

    @classmethod
    def of(cls, lengths: Sequence[int], names: Any) -> Sources:
        """Check the names.

        Raises:
            ConfigError: there is not one name for each source, or two are the same.
        """
        if names is None:
            return cls(lengths, [str(number) for number in range(len(lengths))], are_named=False)
        is_list = not isinstance(names, (str, bytes)) and hasattr(names, "__iter__")
        given = list(names) if is_list else []
        are_texts = all(isinstance(name, str) for name in given)
        if len(given) != len(lengths) or not are_texts or len(set(given)) < len(given):
            raise ConfigError(
                f"names must be {len(lengths)} different texts, one for each source, got "
                f"{names!r:.200}"
            )
        return cls(lengths, given, are_named=True)

    def in_order(self, argument: str, values: Any, default: Any) -> list[Any]:
        """Return values by name in the order of the sources.

        Args:
            argument: the name of the argument, for messages.
            values: a mapping of names.
            default: the value of sources that are not in the mapping.

        Raises:
            ConfigError: the sources have no names, or one is not among them.
        """
        if not self.are_named:
            raise ConfigError(
                f"{argument} by name needs names=[…], one for each source; without names it is a "
                f"list"
            )
        for name in values:
            if name not in self.names:
                known = ", ".join(repr(known_name) for known_name in self.names)
                raise ConfigError(
                    f"{argument} names the source {name!r}{did_you_mean(name, self.names)}; the "
                    f"sources are {known}"
                )
        return [values.get(name, default) for name in self.names]


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
        number = float(temperature)
    except (TypeError, ValueError):
        number = math.nan
    if not 0 < number < math.inf:
        raise ConfigError(f"temperature must be a positive number, got {temperature!r:.80}")
    largest = max(lengths, default=0)
    powers = [(length / largest) ** (1 / number) if length else 0.0 for length in lengths]
    return [float(f"{power:.{_N_DIGITS}g}") for power in powers]


def parse_max_epochs(sources: Sources, max_epochs: Any) -> list[int | None]:
    """Return the largest number of passes through each source; None for no limit.

    Raises:
        ConfigError: a number is not an integer, or less than 1.
    """
    if max_epochs is None or not isinstance(max_epochs, Mapping):
        numbers = [max_epochs] * len(sources.lengths)
    else:
        numbers = sources.in_order("max_epochs", max_epochs, None)
    checked: list[int | None] = []
    for number in numbers:
        if number is None:
            checked.append(None)
        else:
            checked.append(check_integer("max_epochs", number, at_least=1))
    return checked


def parse_consumed(sources: Sources, consumed: Any) -> list[int]:
    """Return how many samples of each source were read before.

    Raises:
        ConfigError: they are no mapping by names, or a number is not allowed; or samples of an
            empty source were read.
    """
    if consumed is None:
        return [0] * len(sources.lengths)
    if not isinstance(consumed, Mapping):
        raise ConfigError(
            f"consumed is a mapping of names of sources to numbers of samples, such as "
            f'{{"web": 12_345}}, got {consumed!r:.80}'
        )
    numbers: list[int] = []
    for name, length, number in zip(
        sources.names, sources.lengths, sources.in_order("consumed", consumed, 0), strict=True
    ):
        checked = check_integer("consumed", number, at_least=0, at_most=MAX_CONSUMED)
        if checked and not length:
            raise ConfigError(f"consumed has {checked:,} samples of {name!r}, which is empty")
        numbers.append(checked)
    return numbers


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
