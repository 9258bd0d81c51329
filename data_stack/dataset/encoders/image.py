"""Images, scaled channel by channel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from data_stack.dataset.encoders.columns import ColumnArray, as_column, first_place
from data_stack.dataset.encoders.encoder import Encoder, check_choice, register_encoder
from data_stack.dataset.encoders.errors import EncodingError
from data_stack.dataset.encoders.learner import Learner
from data_stack.exception import ConfigError
from data_stack.values.moments import RunningMoments
from data_stack.values.stacked_values import stack_values

_Floats = npt.NDArray[np.float64]

#: The factor that scales bytes to [0, 1].
_SCALE_OF_BYTES = 1 / 255

#: The axis of the channels in images of shape ``(n, ...)`` of four dimensions.
_CHANNEL_AXIS = {"first": 1, "last": 3}


@register_encoder
class ImageEncoder(Encoder):
    """Encodes images as ``(value * scale - mean) / std``, float32; the shape stays.

    Images have the shape ``(n, height, width)``, or a further axis of channels. Images of different
    sizes (an object column) are encoded one by one. Mean and standard deviation are those of
    ``value * scale``, one for all or one for each channel; they are learned in blocks, in float64.
    A standard deviation of 0 counts as 1.

    Args:
        mean: a number, or one for each channel; None to learn it.
        std: a number, or one for each channel; None to learn it. Pass ``mean`` and ``std``, or
            neither.
        scale: factor of all values; 1/255 scales bytes to [0, 1].
        channels: where the channels are: ``"last"``: ``(n, height, width, c)``, ``"first"``:
            ``(n, c, height, width)``. Images of two dimensions have one.

    Attributes:
        mean: what is subtracted, float64.
        std: what is divided by, float64.

    Raises:
        ConfigError: only one of mean and std is given, or they are not finite, or a std is not
            above 0.
    """

    kind = "image"

    mean: _Floats
    std: _Floats
    _scale: float
    _channels: str
    #: Whether mean and std were given, not learned.
    _is_given: bool

    def __init__(
        self,
        mean: npt.ArrayLike | None = None,
        std: npt.ArrayLike | None = None,
        scale: float = _SCALE_OF_BYTES,
        channels: Literal["last", "first"] = "last",
    ) -> None:
        self._channels = check_choice("channels", channels, ("last", "first"))
        self._scale = float(scale)
        if not 0 < self._scale < np.inf:
            raise ConfigError(f"scale must be a number above 0, got {scale!r:.80}")
        if (mean is None) != (std is None):
            raise ConfigError("pass both mean and std, or neither to fit them")
        self._is_given = mean is not None
        if self._is_given:
            checked_mean, checked_std = _check_statistics(mean, std)
            self.mean = checked_mean
            self.std = checked_std
            self._learned = {}
        else:
            self.mean = np.asarray(0.0)
            self.std = np.asarray(1.0)

    def config(self) -> dict[str, Any]:
        """Return ``mean`` and ``std`` if they were given, ``scale`` and ``channels``."""
        mean = self.mean.tolist() if self._is_given else None
        std = self.std.tolist() if self._is_given else None
        return {"mean": mean, "std": std, "scale": self._scale, "channels": self._channels}

    # ------------------------------------------------------------------ learning

    def _learner(self) -> Learner | None:
        if self._is_given:
            return None
        return _ImageLearner(self._scale, self._channels)

    def _remember(self, learned: Mapping[str, Any]) -> None:
        mean, std = _check_statistics(learned["mean"], learned["std"])
        self.mean = mean
        self.std = std
        super()._remember(learned)

    # ------------------------------------------------------------------ encoding

    def _transform(self, column: ColumnArray) -> ColumnArray:
        if len(column) == 0:
            return np.empty(column.shape, dtype=np.float32)
        if column.dtype == object:
            encoded = []
            for position, image in enumerate(column):
                encoded.append(self._transform(_column_of_one(image, position))[0])
            return stack_values(encoded)
        _check_images(column, 0)
        scaled: ColumnArray = np.multiply(column, np.float32(self._scale), dtype=np.float32)
        scaled -= self._per_channel(self.mean, column)
        scaled /= self._per_channel(self.std, column)
        return scaled

    def _inverse(self, column: ColumnArray) -> ColumnArray:
        """Return the images: with the scale 1/255 as bytes, rounded, otherwise as float32."""
        if column.dtype == object:
            decoded = []
            for image in column:
                decoded.append(self._inverse(np.asarray(image)[np.newaxis])[0])
            return stack_values(decoded)
        mean = self._per_channel(self.mean, column)
        values: ColumnArray = column * self._per_channel(self.std, column) + mean
        values /= np.float32(self._scale)
        if self._scale == _SCALE_OF_BYTES:
            return np.clip(np.rint(values), 0, 255).astype(np.uint8)
        return values

    def _per_channel(self, statistic: _Floats, images: ColumnArray) -> npt.NDArray[np.float32]:
        """Return a statistic in a shape that broadcasts with the channels of images.

        Raises:
            ConfigError: the images have another number of channels.
        """
        if statistic.size == 1:
            return statistic.reshape(()).astype(np.float32)
        channel_axis = _CHANNEL_AXIS[self._channels]
        if images.ndim != 4 or images.shape[channel_axis] != statistic.size:
            raise ConfigError(
                f"mean and std have {statistic.size} channels, "
                f"images have the shape {images.shape[1:]}"
            )
        shape = [1, 1, 1, 1]
        shape[channel_axis] = statistic.size
        return statistic.reshape(shape).astype(np.float32)


def _check_statistics(mean: Any, std: Any) -> tuple[_Floats, _Floats]:
    """Return mean and standard deviation as float64.

    Raises:
        ConfigError: they are not one number, or one for each channel; or not finite; or the
            standard deviation is not above 0.
    """
    means = np.asarray(mean, dtype=np.float64)
    stds = np.asarray(std, dtype=np.float64)
    has_axes = means.ndim > 1 or stds.ndim > 1
    is_finite = bool(np.isfinite(means).all() and np.isfinite(stds).all())
    if has_axes or not is_finite or (stds <= 0).any():
        raise ConfigError(
            "mean and std must be finite, one for each channel, and std above 0; "
            f"got {means!r:.80} {stds!r:.80}"
        )
    return means, stds


class _ImageLearner(Learner):
    """Learns the mean and the standard deviation of each channel."""

    _scale: float
    _channels: str
    _moments: RunningMoments

    def __init__(self, scale: float, channels: str) -> None:
        self._scale = scale
        self._channels = channels
        self._moments = RunningMoments()

    def add(self, block: ColumnArray, first: int) -> None:
        """Read the next images."""
        if block.dtype == object:
            for position, image in enumerate(block, first):
                self.add(_column_of_one(image, position), position)
            return
        _check_images(block, first)
        pixels = self._pixels(block)
        n_channels = pixels.shape[1]
        shape_before = np.shape(self._moments.mean)  # () before the first block
        if shape_before not in ((), (n_channels,)):
            raise EncodingError(
                f"images must have the same channels: got {n_channels}, "
                f"those before have {shape_before[0]}",
                first,
            )
        if not np.isfinite(pixels).all():
            position_in_block, *_ = first_place(~np.isfinite(block))
            raise EncodingError(
                "an image must have finite values, this one has NaN or infinity",
                first + position_in_block,
            )
        if len(pixels):
            self._moments.add(pixels * self._scale)

    def finish(self) -> dict[str, Any]:
        """Return ``mean`` and ``std``."""
        if not np.any(self._moments.count):
            raise ConfigError("cannot fit: the images have no pixels")
        deviation = self._moments.deviation
        return {
            "mean": np.asarray(self._moments.mean),
            "std": np.where(deviation == 0, 1.0, deviation),
        }

    def _pixels(self, images: ColumnArray) -> _Floats:
        """Return the pixels of images as float64, shape ``(n_pixels, n_channels)``."""
        channel_axis = _CHANNEL_AXIS[self._channels]
        has_channels = images.ndim == 4
        if not has_channels:
            images = images[..., np.newaxis]
            channel_axis = 3
        n_channels = images.shape[channel_axis]
        pixels = np.moveaxis(images, channel_axis, -1).reshape(-1, n_channels)
        return pixels.astype(np.float64)


def _column_of_one(image: Any, position: int) -> ColumnArray:
    """Return an image of a column of objects as a column of its own, shape ``(1, ...)``.

    Raises:
        EncodingError: it is not an image; ``position`` is its position.
    """
    is_tensor = hasattr(image, "detach")
    array = as_column([image])[0] if is_tensor else image
    images = np.asarray(array)[np.newaxis]
    _check_images(images, position)
    return images


def _check_images(images: ColumnArray, position: int) -> None:
    """Check that images have the shape ``(n, height, width)``, or with an axis of channels.

    Raises:
        EncodingError: they do not; ``position`` is that of the first image.
    """
    if images.dtype.kind not in "biuf" or images.ndim not in (3, 4):
        raise EncodingError(
            f"an image has two or three dimensions, got {images.dtype} of shape {images.shape[1:]}",
            position,
        )
