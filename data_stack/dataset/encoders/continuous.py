"""Real numbers, scaled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from data_stack.dataset.encoders.columns import Column, as_floats, first_place
from data_stack.dataset.encoders.encoder import Encoder, Learner, check_choice, register_encoder
from data_stack.dataset.encoders.errors import EncodingError
from data_stack.exception import ConfigError
from data_stack.values.moments import RunningMoments

_SCALINGS = ("standard", "min_max", "max_abs", "none")

Floats = npt.NDArray[np.float64]


@register_encoder
class ContinuousEncoder(Encoder):
    """Scales numbers to ``(value - centre) / scale``, each position of shape ``(n, …)`` by itself; the shape stays.

    ==============  ===========  ==========================================
    ``scaling``     centre       scale
    ==============  ===========  ==========================================
    ``"standard"``  mean         standard deviation of the population
    ``"min_max"``   least value  largest minus least: results in [0, 1]
    ``"max_abs"``   0            largest absolute value: results in [-1, 1]
    ``"none"``      0            1
    ==============  ===========  ==========================================

    A scale of 0, as that of a constant column, counts as 1, so such a column becomes 0. Computes in float64 and rounds to
    ``dtype``. Accepts integers, bools, strings that spell numbers, and None as NaN. Learning ignores NaN; infinity is an error.
    It learns in blocks; how they are cut may change the last bits of centre and scale.

    Args:
        scaling: see above.
        missing: how NaN is encoded: ``"keep"`` leaves it; ``"error"`` refuses it, in learning too; ``"zeros"`` makes it 0,
            that is the centre.
        dtype: of the encoded numbers.

    Raises:
        ConfigError: an argument is not one of these.
    """

    kind = "continuous"
    target_kind = "real"
    _keeps_shape = True

    def __init__(
        self,
        scaling: Literal["standard", "min_max", "max_abs", "none"] = "standard",
        missing: Literal["keep", "error", "zeros"] = "keep",
        dtype: Literal["float32", "float64"] = "float32",
    ) -> None:
        self._scaling = check_choice("scaling", scaling, _SCALINGS)
        self._missing = check_choice("missing", missing, ("keep", "error", "zeros"))
        self._dtype = np.dtype(check_choice("dtype", dtype, ("float32", "float64")))
        self.centre: Floats = np.zeros(())
        self.scale: Floats = np.ones(())
        if scaling == "none":
            self._learned = {}

    # ------------------------------------------------------------------ what it is

    def config(self) -> dict[str, Any]:
        """``scaling``, ``missing`` and ``dtype``."""
        return {"scaling": self._scaling, "missing": self._missing, "dtype": self._dtype.name}

    @property
    def output_size(self) -> int | None:
        """How many numbers a value has; None if any shape is accepted."""
        return None if self._scaling == "none" or not self.is_fitted else self.centre.size

    # ------------------------------------------------------------------ learning

    def _learner(self) -> Learner | None:
        return None if self._scaling == "none" else _NumbersLearner(self._scaling, self._missing)

    def _remember(self, learned: Mapping[str, Any]) -> None:
        centre, scale = (np.asarray(learned[name], dtype=np.float64) for name in ("centre", "scale"))
        if centre.shape != scale.shape or not np.isfinite([centre, scale]).all() or (scale <= 0).any():
            raise ConfigError("centre and scale must be finite, and the scale above 0; the values may overflow float64")
        self.centre, self.scale = centre, scale
        self._learned = {"centre": centre, "scale": scale}

    # ------------------------------------------------------------------ encoding

    def _transform(self, column: Column) -> Column:
        numbers = as_floats(column)
        if self._scaling != "none" and numbers.shape[1:] != self.centre.shape:
            if len(numbers) == 0:
                return np.empty((0, *self.centre.shape), dtype=self._dtype)
            raise ConfigError(f"fitted on values of shape {self.centre.shape}, and these have the shape {numbers.shape[1:]}")
        with np.errstate(over="ignore", invalid="ignore"):  # checked below
            scaled = numbers if self._scaling == "none" else (numbers - self.centre) / self.scale
            scaled = scaled.astype(self._dtype)
        if not np.isfinite(scaled).all():
            _check(numbers, self._missing, 0)
            if np.isinf(scaled).any():
                at = first_place(np.isinf(scaled))
                raise EncodingError(f"{float(numbers[at])!r} is too large for {self._dtype} once scaled", at[0])
            if self._missing == "zeros":
                scaled[np.isnan(scaled)] = 0
        return scaled

    def _inverse(self, column: Column) -> Column:
        """The numbers as float64, up to rounding; NaN that ``missing="zeros"`` replaced become the centre."""
        return as_floats(column) * self.scale + self.centre


class _NumbersLearner(Learner):
    def __init__(self, scaling: str, missing: str) -> None:
        self._scaling, self._missing = scaling, missing
        self._moments = RunningMoments()

    def add(self, block: Column, first: int) -> None:
        numbers = as_floats(block, first)
        _check(numbers, self._missing, first)
        if first and (shape := np.shape(self._moments.mean)) != numbers.shape[1:]:
            raise EncodingError(f"values have the shape {numbers.shape[1:]}, those before {shape}", first)
        self._moments.add(numbers)

    def finish(self) -> dict[str, Any]:
        moments = self._moments
        without_number = np.argwhere(moments.count == 0)
        if len(without_number):
            where = f" in column {', '.join(map(str, without_number[0].tolist()))}" if without_number.shape[1] else ""
            raise ConfigError(f"cannot fit: all values{where} are NaN")
        with np.errstate(over="ignore", invalid="ignore"):  # _remember refuses the result
            if self._scaling == "standard":
                # The mean of equal values is that value, though the sum over their number may miss it by a bit.
                centre, scale = np.where(moments.low == moments.high, moments.low, moments.mean), moments.deviation
            elif self._scaling == "min_max":
                centre, scale = moments.low, moments.high - moments.low
            else:
                centre, scale = np.zeros_like(moments.low), np.maximum(np.abs(moments.low), np.abs(moments.high))
        return {"centre": np.asarray(centre, dtype=np.float64), "scale": np.where(scale == 0, 1.0, scale)}


def _check(numbers: Floats, missing: str, first: int) -> None:
    """Raise EncodingError for infinity, and for NaN where it is an error."""
    refused = ~np.isfinite(numbers) if missing == "error" else np.isinf(numbers)
    if refused.any():
        at = first_place(refused)
        is_nan = np.isnan(numbers[at])
        problem = "a value is missing (NaN)" if is_nan else f"{float(numbers[at])!r} is not a finite number"
        within = f" (in column {', '.join(map(str, at[1:]))})" if len(at) > 1 else ""
        raise EncodingError(problem + within, first + at[0])
