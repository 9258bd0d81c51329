"""Pictures as float32, channel by channel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from data_stack.dataset.encoders.columns import Column, as_column
from data_stack.dataset.encoders.encoder import Encoder, Learner, check_choice
from data_stack.dataset.encoders.errors import EncodingError
from data_stack.dataset.moments import RunningMoments
from data_stack.exception import ConfigError
from data_stack.util.stacked_values import objects

__all__ = ["ImageEncoder"]

_BYTE = 1 / 255


class ImageEncoder(Encoder):
    """Images of shape ``(n, height, width)`` or with channels as ``(value * scale - mean) / std``, float32; the shape stays.

    Images of different sizes (an object column) are encoded one by one. Mean and standard deviation are of ``value * scale``,
    one for all or one for each channel; learned in blocks, in float64. A standard deviation of 0 counts as 1.

    Args:
        mean: a number, or one for each channel; None to learn it.
        std: likewise; both are given or none.
        scale: what values are multiplied with first; 1/255 makes [0, 1] of bytes.
        channels: where the channels are: ``"last"``: ``(n, height, width, c)``, ``"first"``: ``(n, c, height, width)``.
            Images of two dimensions have one.

    Raises:
        ConfigError: only one of mean and std is given, or they are no finite numbers, or a std is not above 0.
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
            raise ConfigError("give both mean and std, or none of them to learn both")
        self._is_given = mean is not None
        self.mean: npt.NDArray[np.float64] = np.zeros(())
        self.std: npt.NDArray[np.float64] = np.ones(())
        if self._is_given:
            self._set(mean, std)
            super()._remember({})

    def config(self) -> dict[str, Any]:
        """``mean`` and ``std`` if they were given, ``scale`` and ``channels``."""
        mean, std = (self.mean.tolist(), self.std.tolist()) if self._is_given else (None, None)
        return {"mean": mean, "std": std, "scale": self._scale, "channels": self._channels}

    def _learner(self) -> Learner | None:
        return None if self._is_given else _ImageLearner(self._scale, self._channels)

    def _remember(self, learned: Mapping[str, Any]) -> None:
        if set(learned) != (set() if self._is_given else {"mean", "std"}):
            raise ConfigError(f"it has learned {', '.join(learned) or 'nothing'}, where mean and std are learned or given")
        if not self._is_given:
            self._set(learned["mean"], learned["std"])
        super()._remember(learned)

    def _set(self, mean: Any, std: Any) -> None:
        try:
            mean, std = np.asarray(mean, dtype=np.float64), np.asarray(std, dtype=np.float64)
            np.broadcast_shapes(mean.shape, std.shape)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"mean and std are numbers, one for all or for each channel: {error}") from None
        if mean.ndim > 1 or std.ndim > 1 or not np.isfinite(mean).all() or not np.isfinite(std).all() or (std <= 0).any():
            raise ConfigError(
                "mean and std are finite numbers, one for all or one for each channel, std above 0; "
                f"got {mean.tolist()!r:.80} and {std.tolist()!r:.80}"
            )
        self.mean, self.std = mean, std

    def _transform(self, column: Column) -> Column:
        if column.dtype != object:
            return self._standardize(_check(column, 0)) if len(column) else np.empty(column.shape, dtype=np.float32)
        images = [self._standardize(_check(_array_of(image)[np.newaxis], place))[0] for place, image in enumerate(column)]
        return np.stack(images) if len({image.shape for image in images}) == 1 else objects(images)

    def _standardize(self, images: Column) -> Column:
        scaled: Column = np.multiply(images, np.float32(self._scale), dtype=np.float32)
        scaled -= self._per_channel(self.mean, images)
        scaled /= self._per_channel(self.std, images)
        return scaled

    def _per_channel(self, statistic: npt.NDArray[np.float64], images: Column) -> npt.NDArray[np.float32]:
        """A statistic in such a shape that it goes with its channels."""
        if statistic.size == 1:
            return statistic.reshape(()).astype(np.float32)
        n_channels = 1 if images.ndim == 3 else images.shape[-1 if self._channels == "last" else 1]
        if statistic.size != n_channels:
            raise ConfigError(
                f"mean and std are of {statistic.size} channels, and images of shape {images.shape[1:]} have {n_channels} "
                f"(channels are {self._channels})"
            )
        shape = (1, -1, 1, 1) if self._channels == "first" else (1, 1, 1, -1)
        return statistic.reshape(shape).astype(np.float32)

    def _inverse(self, column: Column) -> Column:
        """The images again: with the scale 1/255 as bytes, rounded, otherwise as float32."""
        if column.dtype == object:
            images = [self._inverse(np.asarray(image)[np.newaxis])[0] for image in column]
            return objects(images)
        values: Column = (column * self._per_channel(self.std, column) + self._per_channel(self.mean, column)) / np.float32(
            self._scale
        )
        return np.clip(np.rint(values), 0, 255).astype(np.uint8) if self._scale == _BYTE else values.astype(np.float32)


class _ImageLearner(Learner):
    def __init__(self, scale: float, channels: str) -> None:
        self._scale, self._channels = scale, channels
        self._moments = RunningMoments()
        self._n_channels: int | None = None

    def add(self, block: Column, first: int) -> None:
        if block.dtype == object:
            for position, image in enumerate(block, first):
                self._add(_array_of(image)[np.newaxis], position)
        else:
            self._add(block, first)

    def _add(self, images: Column, first: int) -> None:
        images = _check(images, first)
        values = images[..., np.newaxis] if images.ndim == 3 else images
        if images.ndim == 4 and self._channels == "first":
            values = np.moveaxis(values, 1, -1)
        n_channels = values.shape[-1]
        if self._n_channels not in (None, n_channels):
            raise EncodingError(f"an image has {n_channels} channels, those before have {self._n_channels}", first)
        self._n_channels = n_channels
        if values.size == 0:
            return
        pixels = values.reshape(-1, n_channels).astype(np.float64)
        if not np.isfinite(pixels).all():
            raise EncodingError("an image has a value that is no finite number", first)
        self._moments.add(pixels * self._scale)

    def finish(self) -> dict[str, Any]:
        if not np.any(self._moments.count):
            raise ConfigError("there is nothing to learn from: the images have no pixels")
        deviation = self._moments.deviation
        return {"mean": np.asarray(self._moments.mean), "std": np.where(deviation == 0, 1.0, deviation)}


def _array_of(image: Any) -> Column:
    return np.asarray(as_column([image])[0] if hasattr(image, "detach") else image)  # a tensor: outside of the graph


def _check(images: Column, position: int) -> Column:
    """Images of shape ``(n, height, width)`` or with an axis of channels.

    Raises:
        EncodingError: they are none.
    """
    if images.dtype.kind not in "biuf":
        raise EncodingError(f"an image is an array of numbers, not of dtype {images.dtype}", position)
    if images.ndim not in (3, 4):
        raise EncodingError(
            f"an image has the shape (height, width) or a third axis of channels, not {images.shape[1:]}", position
        )
    return images
