"""USPS: digits of postal codes on envelopes."""

from __future__ import annotations

import numpy as np

from data_stack import PreparedResources, Resources
from data_stack.exception import DatasetFileCorruptError
from data_stack.io.archives import open_decompressed
from data_stack_classics.arrays import ArraysFactory


class USPSFactory(ArraysFactory, dataset="usps"):
    """Handwritten digits of postal codes, 16 × 16 pixels.

    Samples are ``(image, label, tag)``: a uint8 array of shape ``(16, 16)``, and twice the digit. The files hold -1 for paper
    and 1 for ink; the pixels are 0 to 255, rounded down as by torchvision.
    """

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        """Convert lines such as ``7 1:-0.5 2:1 …``, a label and 256 values, to images."""
        for split in prepared.steps(self.splits):
            name = f"raw/{split}.bz2"
            with raw[name] as resource, open_decompressed(resource) as lines:
                cells = [[cell.rpartition(b":")[2] for cell in line.split()] for line in lines]
            try:
                rows = np.array(cells).astype(np.float32).reshape(len(cells), 257)
            except ValueError as error:
                raise DatasetFileCorruptError(
                    f"{name!r} is not lines of 257 numbers: {error}. Fetch it again"
                ) from error
            images = (rows[:, 1:].clip(-1, 1) + 1) / 2 * 255
            self.write(
                prepared, split, "image", [images.astype(np.uint8).reshape(-1, 16, 16)], name
            )
            self.write(prepared, split, "label", [rows[:, 0].astype(np.int64) - 1], name)
