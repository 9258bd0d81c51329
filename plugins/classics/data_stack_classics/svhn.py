"""SVHN: house numbers in street views, a digit each."""

from __future__ import annotations

import numpy as np

from data_stack import PreparedResources, Resources
from data_stack.exception import DatasetFileCorruptError
from data_stack_classics.arrays import ArraysFactory, read_rows
from data_stack_classics.matlab import iterate_arrays


class SVHNFactory(ArraysFactory, dataset="svhn"):
    """Digits of house numbers in street views, 32 × 32 pixels in colour.

    For non-commercial use. Samples are ``(image, label, tag)``: a uint8 array of shape ``(32, 32, 3)``, and twice the digit.
    (The files hold 10 for 0.)
    """

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        """Transpose images block by block; the files hold them by colour and column."""
        for split in prepared.steps(self.splits):
            name, n_images = f"raw/{split}.mat", self.n_samples[split]
            expected = {"X": (32, 32, 3, n_images), "y": (n_images, 1)}
            found: dict[str, tuple[int, ...]] = {}
            with raw[name] as resource:
                for variable, shape, dtype, stream in iterate_arrays(resource, name):
                    found[variable] = shape
                    if shape != expected.get(variable):
                        break
                    blocks = read_rows(stream, name, shape[::-1], dtype, is_last=False)
                    if variable == "X":
                        self.write(
                            prepared,
                            split,
                            "image",
                            (block.transpose(0, 3, 2, 1) for block in blocks),
                            name,
                        )
                    else:
                        self.write(
                            prepared,
                            split,
                            "label",
                            (block[0].astype(np.int64) % 10 for block in blocks),
                            name,
                        )
            if found != expected:
                raise DatasetFileCorruptError(
                    f"{name!r} holds {found}, expected {expected}. Fetch it again"
                )
