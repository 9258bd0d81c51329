"""The checks that all datasets of this package share: numbers of samples, and labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from data_stack import DatasetFactory
from data_stack.exception import DatasetFileCorruptError

#: Smaller integers are exact as float64.
_MAX_EXACT_INTEGER = 1 << 53


class ClassicFactory(DatasetFactory):
    """A published dataset with a known number of samples.

    A derived class declares ``card``, ``sources``, ``splits``, ``n_samples``, and, if it has
    classes, ``class_names``. To prepare other files of the same form, such as a few samples for a
    test, derive a class with other ``sources`` and ``n_samples``.

    Attributes:
        n_samples: number of samples of each split.
    """

    n_samples: ClassVar[Mapping[str, int]]

    def check_labels(self, source: str, labels: npt.NDArray[np.integer]) -> None:
        """Check that labels are positions in ``class_names``.

        Args:
            source: name of the file with the labels, for the message.
            labels: the labels, of any shape.

        Raises:
            DatasetFileCorruptError: a label is negative, or has no class.
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

        Args:
            source: name of the file with the samples, for the message.
            split: name of the split.
            n_samples: number of samples in the file.

        Raises:
            DatasetFileCorruptError: the number differs from the attribute ``n_samples``.
        """
        n_expected = self.n_samples[split]
        if n_samples != n_expected:
            raise DatasetFileCorruptError(
                f"{source!r} holds {n_samples:,} samples of {split!r}, expected {n_expected:,}. "
                f"Fetch it again, or set n_samples in a class derived from "
                f"{type(self).__name__} if the file is another one"
            )


def as_integers(source: str, values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return numbers that are whole as int64, without rounding any.

    Args:
        source: name of the file with the numbers, for the message.
        values: floats or integers, of any shape.

    Raises:
        DatasetFileCorruptError: a number has a fraction, is nan or infinite, or is so large that it
            may have been rounded.
    """
    if values.dtype.kind == "f":
        # Larger floats may have been rounded. nan and infinity fail the comparison, too.
        is_exact = (values == np.floor(values)) & (np.abs(values) < _MAX_EXACT_INTEGER)
        if not is_exact.all():
            wrong_value = values[~is_exact].flat[0]
            raise DatasetFileCorruptError(
                f"{source!r} has the label {wrong_value}, expected an integer. Fetch it again"
            )
    return values.astype(np.int64)
