"""Scales numbers: of columns, of images."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from data_stack.dataset.encoders.encoder import (
    Column,
    Encoder,
    Learner,
    as_column,
    check_choice,
    first_place,
    register_encoder,
)
from data_stack.dataset.encoders.errors import EncodingError
from data_stack.exception import ConfigError
from data_stack.values.moments import RunningMoments
from data_stack.values.stacked_values import stack_values


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
        self._scaling = check_choice("scaling", scaling, ("standard", "min_max", "max_abs", "none"))
        self._missing = check_choice("missing", missing, ("keep", "error", "zeros"))
        self._dtype = np.dtype(check_choice("dtype", dtype, ("float32", "float64")))
        self._remember({"centre": 0.0, "scale": 1.0})
        self._learned = {} if scaling == "none" else None

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
        centre, scale = (
            np.asarray(learned[name], dtype=np.float64) for name in ("centre", "scale")
        )
        if (
            centre.shape != scale.shape
            or not np.isfinite([centre, scale]).all()
            or (scale <= 0).any()
        ):
            raise ConfigError(
                "centre and scale must be finite, and the scale above 0; the values may overflow float64"
            )
        self.centre, self.scale = centre, scale
        self._learned = {"centre": centre, "scale": scale}

    # ------------------------------------------------------------------ encoding

    def _transform(self, column: Column) -> Column:
        numbers = _as_floats(column)
        if self._scaling != "none" and numbers.shape[1:] != self.centre.shape:
            if len(numbers) == 0:
                return np.empty((0, *self.centre.shape), dtype=self._dtype)
            raise ConfigError(
                f"fitted on values of shape {self.centre.shape}, and these have the shape {numbers.shape[1:]}"
            )
        with np.errstate(over="ignore", invalid="ignore"):  # checked below
            scaled = numbers if self._scaling == "none" else (numbers - self.centre) / self.scale
            scaled = scaled.astype(self._dtype)
        if not np.isfinite(scaled).all():
            _check(numbers, self._missing, 0)
            if np.isinf(scaled).any():
                at = first_place(np.isinf(scaled))
                raise EncodingError(
                    f"{float(numbers[at])!r} is too large for {self._dtype} once scaled", at[0]
                )
            if self._missing == "zeros":
                scaled[np.isnan(scaled)] = 0
        return scaled

    def _inverse(self, column: Column) -> Column:
        """The numbers as float64, up to rounding; NaN that ``missing="zeros"`` replaced become the centre."""
        return _as_floats(column) * self.scale + self.centre


class _NumbersLearner(Learner):
    def __init__(self, scaling: str, missing: str) -> None:
        self._scaling, self._missing = scaling, missing
        self._moments = RunningMoments()

    def add(self, block: Column, first: int) -> None:
        numbers = _as_floats(block, first)
        _check(numbers, self._missing, first)
        if first and (shape := np.shape(self._moments.mean)) != numbers.shape[1:]:
            raise EncodingError(
                f"values have the shape {numbers.shape[1:]}, those before {shape}", first
            )
        self._moments.add(numbers)

    def finish(self) -> dict[str, Any]:
        moments = self._moments
        without_number = np.argwhere(moments.count == 0)
        if len(without_number):
            where = (
                f" in column {', '.join(map(str, without_number[0].tolist()))}"
                if without_number.shape[1]
                else ""
            )
            raise ConfigError(f"cannot fit: all values{where} are NaN")
        with np.errstate(over="ignore", invalid="ignore"):  # _remember refuses the result
            if self._scaling == "standard":
                # The mean of equal values is that value, though the sum over their number may miss it by a bit.
                centre, scale = (
                    np.where(moments.low == moments.high, moments.low, moments.mean),
                    moments.deviation,
                )
            elif self._scaling == "min_max":
                centre, scale = moments.low, moments.high - moments.low
            else:
                centre, scale = (
                    np.zeros_like(moments.low),
                    np.maximum(np.abs(moments.low), np.abs(moments.high)),
                )
        return {
            "centre": np.asarray(centre, dtype=np.float64),
            "scale": np.where(scale == 0, 1.0, scale),
        }


def _as_floats(column: Column, first: int = 0) -> npt.NDArray[np.float64]:
    """Numbers as float64, None as NaN; strings as the numbers that they spell.

    Args:
        column: shape ``(n, ...)``.
        first: position of its first value, for errors.

    Raises:
        EncodingError: a value is not a number.
        ConfigError: the dtype is not one of real numbers.
    """
    kind = column.dtype.kind
    if kind in "biuf":
        return column.astype(np.float64, copy=False)
    if kind not in "OUS":
        raise ConfigError(f"a column of real numbers is required, got dtype {column.dtype}")
    with contextlib.suppress(ValueError, TypeError):
        return column.astype(np.float64)
    numbers: list[npt.NDArray[np.float64]] = []
    for position, value in enumerate(column, first):
        try:
            number = np.asarray(value, dtype=np.float64)
            numbers.append(np.stack([number, *numbers[:1]])[0])  # of one shape
        except (ValueError, TypeError):
            raise EncodingError(
                f"{value!r:.80} is not a number, or of another shape than those before", position
            ) from None
    return np.stack(numbers)


def _check(numbers: npt.NDArray[np.float64], missing: str, first: int) -> None:
    """Raise EncodingError for infinity, and for NaN where it is an error."""
    refused = ~np.isfinite(numbers) if missing == "error" else np.isinf(numbers)
    if refused.any():
        at = first_place(refused)
        problem = (
            f"{float(numbers[at])!r} is not a finite number"
            if not np.isnan(numbers[at])
            else "a value is missing (NaN)"
        )
        within = f" (in column {', '.join(map(str, at[1:]))})" if len(at) > 1 else ""
        raise EncodingError(problem + within, first + at[0])


_BYTE = 1 / 255


@register_encoder
class ImageEncoder(Encoder):
    """Encodes images as ``(value * scale - mean) / std``, float32; the shape stays.

    Images have the shape ``(n, height, width)``, or a further axis of channels. Images of different sizes (an object column) are
    encoded one by one. Mean and standard deviation are those of ``value * scale``, one for all or one for each channel; they
    are learned in blocks, in float64. A standard deviation of 0 counts as 1.

    Args:
        mean: a number, or one for each channel; None to learn it.
        std: likewise; pass both or neither.
        scale: factor of all values; 1/255 scales bytes to [0, 1].
        channels: where the channels are: ``"last"``: ``(n, height, width, c)``, ``"first"``: ``(n, c, height, width)``.
            Images of two dimensions have one.

    Raises:
        ConfigError: only one of mean and std is given, or they are not finite, or a std is not above 0.
    """

    kind = "image"

    def __init__(
        self,
        mean: npt.ArrayLike | None = None,
        std: npt.ArrayLike | None = None,
        scale: float = _BYTE,
        channels: Literal["last", "first"] = "last",
    ) -> None:
        self._channels = check_choice("channels", channels, ("last", "first"))
        self._scale = float(scale)
        if not 0 < self._scale < np.inf:
            raise ConfigError(f"scale must be a number above 0, got {scale!r:.80}")
        if (mean is None) != (std is None):
            raise ConfigError("pass both mean and std, or neither to fit them")
        self._is_given = mean is not None
        self._remember({"mean": mean, "std": std} if self._is_given else {"mean": 0.0, "std": 1.0})
        self._learned = {} if self._is_given else None

    def config(self) -> dict[str, Any]:
        """``mean`` and ``std`` if they were given, ``scale`` and ``channels``."""
        mean, std = (self.mean.tolist(), self.std.tolist()) if self._is_given else (None, None)
        return {"mean": mean, "std": std, "scale": self._scale, "channels": self._channels}

    def _learner(self) -> Learner | None:
        return None if self._is_given else _ImageLearner(self._scale, self._channels)

    def _remember(self, learned: Mapping[str, Any]) -> None:
        mean, std = (np.asarray(learned[name], dtype=np.float64) for name in ("mean", "std"))
        if (
            max(mean.ndim, std.ndim) > 1
            or not np.isfinite([*mean.ravel(), *std.ravel()]).all()
            or (std <= 0).any()
        ):
            raise ConfigError(
                f"mean and std must be finite, one for each channel, and std above 0; got {mean!r:.80} {std!r:.80}"
            )
        self.mean, self.std = mean, std
        super()._remember(learned)

    def _transform(self, column: Column) -> Column:
        if column.dtype == object and len(column):
            return stack_values(
                [self._transform(_one_image(image, place))[0] for place, image in enumerate(column)]
            )
        if len(column) == 0:
            return np.empty(column.shape, dtype=np.float32)
        scaled: Column = np.multiply(
            _check_images(column, 0), np.float32(self._scale), dtype=np.float32
        )
        scaled -= self._per_channel(self.mean, column)
        scaled /= self._per_channel(self.std, column)
        return scaled

    def _per_channel(
        self, statistic: npt.NDArray[np.float64], images: Column
    ) -> npt.NDArray[np.float32]:
        """A statistic in a shape that broadcasts with the channels of ``images``."""
        if statistic.size == 1:
            return statistic.reshape(()).astype(np.float32)
        shape = (1, -1, 1, 1) if self._channels == "first" else (1, 1, 1, -1)
        if images.ndim != 4 or statistic.size != images.shape[shape.index(-1)]:
            raise ConfigError(
                f"mean and std have {statistic.size} channels, images have the shape {images.shape[1:]}"
            )
        return statistic.reshape(shape).astype(np.float32)

    def _inverse(self, column: Column) -> Column:
        """The images again: with the scale 1/255 as bytes, rounded, otherwise as float32."""
        if column.dtype == object:
            return stack_values(
                [self._inverse(np.asarray(image)[np.newaxis])[0] for image in column]
            )
        values: Column = column * self._per_channel(self.std, column) + self._per_channel(
            self.mean, column
        )
        values /= np.float32(self._scale)
        return np.clip(np.rint(values), 0, 255).astype(np.uint8) if self._scale == _BYTE else values


class _ImageLearner(Learner):
    def __init__(self, scale: float, channels: str) -> None:
        self._scale, self._channels = scale, channels
        self._moments = RunningMoments()

    def add(self, block: Column, first: int) -> None:
        if block.dtype == object:
            for position, image in enumerate(block, first):
                self.add(_one_image(image, position), position)
            return
        images = _check_images(block, first)
        images = images[..., np.newaxis] if images.ndim == 3 else images
        axis = 1 if self._channels == "first" and block.ndim == 4 else -1
        pixels = np.moveaxis(images, axis, -1).reshape(-1, images.shape[axis]).astype(np.float64)
        if not np.isfinite(pixels).all() or np.shape(self._moments.mean) not in (
            (),
            pixels.shape[1:],
        ):
            raise EncodingError(
                f"images must have finite values, and the same channels; got {pixels.shape[1]} channels",
                first,
            )
        if len(pixels):
            self._moments.add(pixels * self._scale)

    def finish(self) -> dict[str, Any]:
        if not np.any(self._moments.count):
            raise ConfigError("cannot fit: the images have no pixels")
        deviation = self._moments.deviation
        return {
            "mean": np.asarray(self._moments.mean),
            "std": np.where(deviation == 0, 1.0, deviation),
        }


def _one_image(image: Any, position: int) -> Column:
    """An image of an object column as a column of one image."""
    array = np.asarray(
        as_column([image])[0] if hasattr(image, "detach") else image
    )  # detaches a tensor
    return _check_images(array[np.newaxis], position)


def _check_images(images: Column, position: int) -> Column:
    """Raise EncodingError unless ``images`` has the shape ``(n, height, width)`` or with an axis of channels."""
    if images.dtype.kind not in "biuf" or images.ndim not in (3, 4):
        raise EncodingError(
            f"an image has two or three dimensions, got {images.dtype} of shape {images.shape[1:]}",
            position,
        )
    return images
