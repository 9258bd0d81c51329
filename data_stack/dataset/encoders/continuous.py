"""Real numbers, scaled."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from data_stack.dataset.encoders.columns import ColumnArray, first_place
from data_stack.dataset.encoders.encoder import Encoder, check_choice, register_encoder
from data_stack.dataset.encoders.errors import EncodingError
from data_stack.dataset.encoders.learner import Learner
from data_stack.exception import ConfigError
from data_stack.values.moments import RunningMoments

_Floats = npt.NDArray[np.float64]


@register_encoder
class ContinuousEncoder(Encoder):
    """Scales numbers to ``(value - centre) / scale``, each position of shape ``(n, …)`` by itself.

    The shape stays.

    ==============  ===========  ==========================================
    ``scaling``     centre       scale
    ==============  ===========  ==========================================
    ``"standard"``  mean         standard deviation of the population
    ``"min_max"``   least value  largest minus least: results in [0, 1]
    ``"max_abs"``   0            largest absolute value: results in [-1, 1]
    ``"none"``      0            1
    ==============  ===========  ==========================================

    A scale of 0, as that of a constant column, counts as 1, so such a column becomes 0. Computes in
    float64 and rounds to ``dtype``. Accepts integers, bools, strings that spell numbers, and None
    as NaN. Learning ignores NaN; infinity is an error. It learns in blocks; how they are cut may
    change the last bits of centre and scale.

    Args:
        scaling: see above.
        missing: how NaN is encoded: ``"keep"`` leaves NaN; ``"error"`` refuses it, in fitting too;
            ``"zeros"`` makes it 0, as the centre becomes.
        dtype: the dtype of the encoded numbers.

    Attributes:
        centre: what is subtracted, float64.
        scale: what is divided by, float64.

    Raises:
        ConfigError: an argument is not one of these.
    """

    kind = "continuous"
    target_kind = "real"
    _keeps_shape = True

    centre: _Floats
    scale: _Floats
    _scaling: str
    _missing: str
    _dtype: np.dtype[Any]

    def __init__(
        self,
        scaling: Literal["standard", "min_max", "max_abs", "none"] = "standard",
        missing: Literal["keep", "error", "zeros"] = "keep",
        dtype: Literal["float32", "float64"] = "float32",
    ) -> None:
        self._scaling = check_choice("scaling", scaling, ("standard", "min_max", "max_abs", "none"))
        self._missing = check_choice("missing", missing, ("keep", "error", "zeros"))
        self._dtype = np.dtype(check_choice("dtype", dtype, ("float32", "float64")))
        self.centre = np.asarray(0.0)
        self.scale = np.asarray(1.0)
        if scaling == "none":
            # There is nothing to learn.
            self._learned = {}

    def config(self) -> dict[str, Any]:
        """Return ``scaling``, ``missing`` and ``dtype``."""
        return {"scaling": self._scaling, "missing": self._missing, "dtype": self._dtype.name}

    @property
    def output_size(self) -> int | None:
        """How many numbers a value has; None if any shape is accepted."""
        if self._scaling == "none" or not self.is_fitted:
            return None
        return self.centre.size

    # ------------------------------------------------------------------ learning

    def _learner(self) -> Learner | None:
        if self._scaling == "none":
            return None
        return _NumbersLearner(self._scaling, self._missing)

    def _remember(self, learned: Mapping[str, Any]) -> None:
        centre = np.asarray(learned["centre"], dtype=np.float64)
        scale = np.asarray(learned["scale"], dtype=np.float64)
        is_finite = bool(np.isfinite(centre).all() and np.isfinite(scale).all())
        if centre.shape != scale.shape or not is_finite or (scale <= 0).any():
            raise ConfigError(
                "centre and scale must be finite, and the scale above 0; "
                "the values may overflow float64"
            )
        self.centre = centre
        self.scale = scale
        self._learned = {"centre": centre, "scale": scale}

    # ------------------------------------------------------------------ encoding

    def _transform(self, column: ColumnArray) -> ColumnArray:
        numbers = _as_floats(column)
        # The result is checked below.
        with np.errstate(over="ignore", invalid="ignore"):
            scaled: ColumnArray = self._scale_numbers(numbers).astype(self._dtype)
        if np.isfinite(scaled).all():
            return scaled

        _check_finite(numbers, self._missing, 0)
        is_infinite = np.isinf(scaled)
        if is_infinite.any():
            place = first_place(is_infinite)
            number = float(numbers[place])
            raise EncodingError(f"{number!r} is too large for {self._dtype} once scaled", place[0])
        if self._missing == "zeros":
            scaled[np.isnan(scaled)] = 0
        return scaled

    def _scale_numbers(self, numbers: _Floats) -> _Floats:
        """Return ``(numbers - centre) / scale``, float64.

        Raises:
            ConfigError: the values have another shape than those of fitting.
        """
        if self._scaling == "none":
            return numbers
        if numbers.shape[1:] == self.centre.shape:
            return (numbers - self.centre) / self.scale
        if len(numbers) == 0:
            return np.empty((0, *self.centre.shape))
        raise ConfigError(
            f"fitted on values of shape {self.centre.shape}, "
            f"and these have the shape {numbers.shape[1:]}"
        )

    def _inverse(self, column: ColumnArray) -> ColumnArray:
        """Return the numbers as float64, up to rounding.

        NaN that ``missing="zeros"`` replaced become the centre.
        """
        return _as_floats(column) * self.scale + self.centre


class _NumbersLearner(Learner):
    """Learns the centre and the scale of numbers."""

    _scaling: str
    _missing: str
    _moments: RunningMoments

    def __init__(self, scaling: str, missing: str) -> None:
        self._scaling = scaling
        self._missing = missing
        self._moments = RunningMoments()

    def add(self, block: ColumnArray, first: int) -> None:
        """Read the next numbers."""
        numbers = _as_floats(block, first)
        _check_finite(numbers, self._missing, first)
        is_first_block = first == 0
        if not is_first_block:
            shape_before = np.shape(self._moments.mean)
            if numbers.shape[1:] != shape_before:
                raise EncodingError(
                    f"values have the shape {numbers.shape[1:]}, those before {shape_before}", first
                )
        self._moments.add(numbers)

    def finish(self) -> dict[str, Any]:
        """Return ``centre`` and ``scale``."""
        self._check_each_position_has_numbers()
        with np.errstate(over="ignore", invalid="ignore"):  # _remember() checks the result
            centre, scale = self._centre_and_scale()
        return {
            "centre": np.asarray(centre, dtype=np.float64),
            "scale": np.where(scale == 0, 1.0, scale),
        }

    def _centre_and_scale(self) -> tuple[_Floats, _Floats]:
        moments = self._moments
        if self._scaling == "standard":
            # The mean of equal values is that value, though the sum divided by their number may
            # miss it by a bit.
            is_constant = moments.low == moments.high
            return np.where(is_constant, moments.low, moments.mean), moments.deviation
        if self._scaling == "min_max":
            return moments.low, moments.high - moments.low
        largest = np.maximum(np.abs(moments.low), np.abs(moments.high))
        return np.zeros_like(moments.low), largest

    def _check_each_position_has_numbers(self) -> None:
        empty_positions = np.argwhere(self._moments.count == 0)
        if not len(empty_positions):
            return
        position = empty_positions[0].tolist()
        where = f" in column {_join(position)}" if position else ""
        raise ConfigError(f"cannot fit: all values{where} are NaN")


def _as_floats(column: ColumnArray, first: int = 0) -> _Floats:
    """Return numbers as float64, None as NaN, and strings as the numbers that they spell.

    Args:
        column: shape ``(n, ...)``.
        first: the position in the whole column of the first value, for errors.

    Raises:
        EncodingError: a value is not a number.
        ConfigError: the dtype is not one of real numbers.
    """
    dtype_kind = column.dtype.kind
    if dtype_kind in "biuf":
        return column.astype(np.float64, copy=False)
    if dtype_kind not in "OUS":
        raise ConfigError(f"a column of real numbers is required, got dtype {column.dtype}")
    with contextlib.suppress(ValueError, TypeError):
        return column.astype(np.float64)

    # The values may be lists of numbers. Otherwise one of them is refused, with its position.
    rows: list[_Floats] = []
    for position, value in enumerate(column, first):
        row = _number_or_none(value)
        if row is None or (rows and row.shape != rows[0].shape):
            raise EncodingError(
                f"{value!r:.80} is not a number, or of another shape than those before", position
            )
        rows.append(row)
    return np.stack(rows)


def _number_or_none(value: Any) -> _Floats | None:
    """Return a number, or an array of numbers, as float64; None for other values."""
    try:
        return np.asarray(value, dtype=np.float64)
    except (ValueError, TypeError):
        return None


def _check_finite(numbers: _Floats, missing: str, first: int) -> None:
    """Refuse infinity, and NaN if ``missing`` is ``"error"``.

    Args:
        numbers: shape ``(n, ...)``.
        missing: as for :class:`ContinuousEncoder`.
        first: the position in the whole column of the first number, for the error.

    Raises:
        EncodingError: a number is refused.
    """
    if missing == "error":
        is_refused = ~np.isfinite(numbers)
    else:
        is_refused = np.isinf(numbers)
    if not is_refused.any():
        return
    place = first_place(is_refused)
    number = float(numbers[place])
    if np.isnan(number):
        problem = "a value is missing (NaN)"
    else:
        problem = f"{number!r} is not a finite number"
    position, *place_in_value = place
    if place_in_value:
        problem += f" (in column {_join(place_in_value)})"
    raise EncodingError(problem, first + position)


def _join(place: list[int]) -> str:
    return ", ".join(str(index) for index in place)
