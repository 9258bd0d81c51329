"""Arrays of different lengths as their concatenation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from data_stack.dataset.positions import check_index
from data_stack.exception import ConfigError


@dataclass(frozen=True, slots=True, eq=False)
class Ragged:
    """The concatenation of arrays that differ in their first dimension.

    ``ragged[i]`` is the array of sample i, a view. Values and offsets are what
    ``torch.nn.EmbeddingBag``, ``torch.nested.nested_tensor_from_jagged``,
    ``tf.RaggedTensor.from_row_splits`` and attention kernels for sequences of different lengths (as
    ``cu_seqlens``) accept.

    Attributes:
        values: shape ``(n_values, ...)``.
        offsets: int64, shape ``(n + 1,)``, ascending from 0 to ``n_values``: sample i has
            ``values[offsets[i]:offsets[i + 1]]``.

    Raises:
        ConfigError: the offsets do not fit the values.
    """

    values: npt.NDArray[Any]
    offsets: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        values = np.asarray(self.values)
        offsets = np.asarray(self.offsets)
        if values.ndim == 0:
            raise ConfigError("the values of a ragged array need at least one dimension")
        if offsets.ndim != 1 or len(offsets) == 0 or offsets.dtype.kind not in "iu":
            raise ConfigError(
                "the offsets of a ragged array must be n + 1 integers ([0] without samples), "
                f"got {offsets.dtype} of shape {offsets.shape}"
            )
        offsets = offsets.astype(np.int64, copy=False)
        descends = bool((offsets[1:] < offsets[:-1]).any())
        if offsets[0] != 0 or offsets[-1] != len(values) or descends:
            raise ConfigError(
                f"the offsets of a ragged array must ascend from 0 to its {len(values):,} values, "
                f"got offsets from {offsets[0]} to {offsets[-1]}"
            )
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "offsets", offsets)

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """The number of values of each sample, shape ``(n,)``."""
        return self.offsets[1:] - self.offsets[:-1]  # also if loader.torch() has put tensors here

    @property
    def nbytes(self) -> int:
        """The size of both arrays in bytes."""
        return int(self.values.nbytes + self.offsets.nbytes)

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.offsets) - 1

    def __getitem__(self, index: SupportsIndex) -> npt.NDArray[Any]:
        """Return the array of one sample, a view.

        Raises:
            DatasetOutOfBoundsError: the index is out of range.
        """
        sample = check_index(index, len(self))
        array: npt.NDArray[Any] = self.values[self.offsets[sample] : self.offsets[sample + 1]]
        return array

    def __iter__(self) -> Iterator[npt.NDArray[Any]]:
        for start, end in pairwise(self.offsets.tolist()):
            yield self.values[start:end]
