"""The sizes of parts: what a program asks for, and how many samples each part gets."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from data_stack.exception import ConfigError
from data_stack.util.program_lines import warn_program

#: The sum of ratios may differ from 1 by this.
_TOLERANCE = 1e-9


def check_ratios(ratios: Iterable[Any], names: Sequence[str] | None = None) -> list[float]:
    """Return ratios as they were given: at least one, none negative, of sum 1 (to 1e-9).

    Args:
        ratios: the ratios.
        names: the names of the parts, for messages; None if the parts have none.

    Raises:
        ConfigError: the ratios are not such. The message names the first wrong ratio by its
            position or name.
    """
    if isinstance(ratios, (str, bytes)) or not isinstance(ratios, Iterable):
        raise ConfigError(
            f"ratios are the sizes of all parts, such as [0.8, 0.2], got {ratios!r:.80}"
        )
    given: list[Any] = list(ratios)
    for position, ratio in enumerate(given):
        is_number = isinstance(ratio, numbers.Real)
        # NaN is not in any range.
        if not is_number or not 0 <= float(ratio) < math.inf:
            name = position if names is None else repr(names[position])
            raise ConfigError(
                "ratios must not be negative and must sum to 1; "
                f"ratio {name} of {given} is {ratio!r}"
            )
    total = math.fsum(given)
    if not given or abs(total - 1) > _TOLERANCE:
        raise ConfigError(f"ratios must not be negative and must sum to 1; {given} sum to {total}")
    return given


def check_sizes(sizes: Any, names: Sequence[str] | None = None) -> list[int] | list[float]:
    """Return sizes of parts: counts of samples, or ratios.

    Sizes are counts if they are integers of sum 2 or more; otherwise see :func:`check_ratios`.

    Raises:
        ConfigError: they are neither.
    """
    # An iterator can be read only once. check_ratios() refuses what is not a list.
    is_list = isinstance(sizes, Iterable) and not isinstance(sizes, (str, bytes))
    given: Any = list(sizes) if is_list else sizes
    if is_list and all(_is_count(size) for size in given) and sum(given) > 1:
        return [int(size) for size in given]
    return [float(ratio) for ratio in check_ratios(given, names)]


def _is_count(size: Any) -> bool:
    is_integer = isinstance(size, (int, np.integer)) and type(size) is not bool
    return is_integer and bool(size >= 0)


@dataclass(frozen=True)
class Shares:
    """How much each part gets, as whole numbers.

    Attributes:
        weights: the share of each part.
        total: the sum of the weights.
    """

    weights: tuple[int, ...]
    total: int

    @classmethod
    def of_sizes(cls, sizes: Sequence[float], n_samples: int) -> Shares:
        """Return the shares that checked sizes mean.

        Ratios are what they say in decimals: 0.1 is a tenth, not the nearest binary fraction.

        Args:
            sizes: as :func:`check_sizes` returns them.
            n_samples: the number of all samples.

        Raises:
            ConfigError: the sizes are counts, but not of ``n_samples``.
        """
        counts = [size for size in sizes if isinstance(size, int)]
        are_counts = len(counts) == len(sizes)
        if not are_counts:
            return cls._of_ratios(sizes)
        _check_sum(counts, n_samples)
        return cls(tuple(counts), n_samples)

    @classmethod
    def _of_ratios(cls, ratios: Sequence[float]) -> Shares:
        fractions = [Fraction(repr(float(ratio))) for ratio in ratios]
        denominators = [fraction.denominator for fraction in fractions]
        common_denominator = math.lcm(*denominators)
        weights = [int(fraction * common_denominator) for fraction in fractions]
        divisor = math.gcd(*weights)
        return cls(tuple(weight // divisor for weight in weights), sum(weights) // divisor)

    @property
    def n_wanted(self) -> int:
        """How many parts get anything."""
        return sum(weight > 0 for weight in self.weights)

    def sizes(self, n_samples: int) -> list[int]:
        """Divide a number of samples among the parts.

        Each share is rounded down. The samples that are left go, one each, to the parts with the
        largest remainders; of equal remainders the first part gets one. So each size differs by
        less than 1 from its share.

        Returns:
            The size of each part, of sum ``n_samples``.
        """
        sizes = [n_samples * weight // self.total for weight in self.weights]
        remainders = [n_samples * weight % self.total for weight in self.weights]
        by_remainder = sorted(range(len(sizes)), key=lambda part: -remainders[part])
        n_left = n_samples - sum(sizes)
        for part in by_remainder[:n_left]:
            sizes[part] += 1
        return sizes


def _check_sum(counts: Sequence[int], n_samples: int) -> None:
    """Check that counts are those of all samples.

    Raises:
        ConfigError: they are not.
    """
    total = sum(counts)
    if total == n_samples:
        return
    if total < n_samples:
        advice = f"add a part for the other {n_samples - total:,}"
    else:
        advice = f"{total - n_samples:,} too many"
    terms = " + ".join(f"{count:,}" for count in counts)
    raise ConfigError(
        f"parts of {terms} = {total:,} samples, but there are {n_samples:,}: "
        f"{advice}, or give ratios that sum to 1"
    )


def warn_of_empty_parts(
    sizes: Mapping[Any, int], ratios: Mapping[Any, float], n_samples: int, advice: str
) -> None:
    """Warn of parts that should have samples, and have none.

    Args:
        sizes: the number of samples of each part.
        ratios: the ratio or count of each part. Of a part with 0, nothing is said.
        n_samples: the number of all samples. Without samples all parts are empty.
        advice: what to do.
    """
    empty_parts = [part for part, size in sizes.items() if size == 0 and ratios[part] > 0]
    if not empty_parts or not n_samples:
        return
    part = empty_parts[0]
    n_others = len(empty_parts) - 1
    others = f" (so are {n_others} others)" if n_others else ""
    warn_program(
        f"part {part!r} of a split is empty{others}: "
        f"{ratios[part]} of {n_samples:,} samples gives none; {advice}"
    )
