"""The base class of all datasets of this package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from data_stack import DatasetFactory
from data_stack.exception import DatasetFileCorruptError


class ClassicFactory(DatasetFactory):
    """A published dataset with a known number of samples.

    To prepare other files of the same form, such as a few samples for a test, derive a class with
    other ``sources`` and ``n_samples``.

    Attributes:
        n_samples: number of samples of each split.
    """

    n_samples: ClassVar[Mapping[str, int]]

    def check_labels(self, source: str, labels: npt.NDArray[np.integer]) -> None:
        """Check that labels are positions in ``class_names``.

        Raises:
            DatasetFileCorruptError: a label is not; the message names ``source``.
        """
        if len(labels) == 0:
            return
        n_classes = len(self.class_names or ())
        if labels.min() < 0 or labels.max() >= n_classes:
            raise DatasetFileCorruptError(
                f"{source!r} has classes from {labels.min()} to {labels.max()}, "
                f"expected 0 to {n_classes - 1}. Fetch it again"
            )

    def check_count(self, source: str, split: str, n_samples: int) -> None:
        """Check the number of samples of a split.

        Raises:
            DatasetFileCorruptError: the number differs from ``n_samples``; the message names
                ``source``.
        """
        n_expected = self.n_samples[split]
        if n_samples != n_expected:
            raise DatasetFileCorruptError(
                f"{source!r} holds {n_samples:,} samples of {split!r}, expected {n_expected:,}. "
                f"Fetch it again, or set n_samples in a class derived from "
                f"{type(self).__name__} if the file is another one"
            )
