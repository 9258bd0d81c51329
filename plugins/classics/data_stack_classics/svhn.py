"""SVHN: house numbers in street views, a digit each."""

from __future__ import annotations

import numpy as np
from scipy.io import loadmat

from data_stack import PreparedResources, Resources
from data_stack.exception import DatasetFileCorruptError
from data_stack_classics.arrays import ArraysFactory


class SVHNFactory(ArraysFactory, dataset="svhn"):
    """Digits of house numbers in street views, 32 × 32 pixels in colour.

    For non-commercial use. Samples are ``(image, label, tag)``: a uint8 array of shape ``(32, 32, 3)``, and twice the digit.
    (The files hold 10 for 0.)
    """

    n_samples = {"train": 73_257, "test": 26_032, "extra": 531_131}
    class_names = tuple("0123456789")

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        """Transpose images; the files hold them by colour and column."""
        for split in prepared.steps(self.splits):
            name = f"raw/{split}.mat"
            try:
                with raw[name] as resource:
                    found = loadmat(resource)
                images, labels = found["X"].transpose(3, 0, 1, 2), found["y"][:, 0].astype(np.int64) % 10
            except Exception as error:  # scipy raises anything
                raise DatasetFileCorruptError(f"{name!r} lacks valid images X and labels y: {error}. Fetch it again") from error
            self.write(prepared, split, "image", np.array_split(images, 1 + len(images) // 4096), name)
            self.write(prepared, split, "label", [labels], name)
