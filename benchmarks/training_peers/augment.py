"""The augmentation that all image programs share: a random resized crop and a flip, by OpenCV."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np

cv2.setNumThreads(0)
SIZE = 224


def augment(image: Any, rng: np.random.Generator) -> Any:
    """A crop of 8 to 100 % of the area, of a ratio from 3/4 to 4/3, resized to 224 × 224; every
    second one flipped.

    Args:
        image: uint8, shape ``(height, width, 3)``.
        rng: draws.
    """
    height, width = image.shape[:2]
    for _ in range(10):
        area, ratio = (
            height * width * rng.uniform(0.08, 1.0),
            np.exp(rng.uniform(np.log(3 / 4), np.log(4 / 3))),
        )
        crop_width, crop_height = round((area * ratio) ** 0.5), round((area / ratio) ** 0.5)
        if crop_width <= width and crop_height <= height:
            break
    else:
        crop_width = crop_height = min(height, width)
    top, left = rng.integers(0, height - crop_height + 1), rng.integers(0, width - crop_width + 1)
    crop = cv2.resize(
        image[top : top + crop_height, left : left + crop_width],
        (SIZE, SIZE),
        interpolation=cv2.INTER_LINEAR,
    )
    return cv2.flip(crop, 1) if rng.random() < 0.5 else crop


def decode(data: bytes) -> Any:
    """A JPEG as RGB."""
    return cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB)


class Augmentation:
    """Decodes and augments, with draws of its own in each process."""

    def __init__(self) -> None:
        self._rng: np.random.Generator | None = None

    def __call__(self, data: bytes) -> Any:
        if self._rng is None:
            self._rng = np.random.default_rng()
        return augment(decode(data), self._rng)

    def __getstate__(self) -> dict[str, Any]:
        return {"_rng": None}
