"""Opens what the memory map of :mod:`record_peers` wrote: one file a column, or blobs end to
end.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from record_peers.workload import Schema


def mapped_columns(schema: Schema, folder: Path) -> dict[str, npt.NDArray[Any]]:
    """Memory maps by field, as plain arrays: numpy.memmap itself costs a microsecond more each
    time.
    """
    return {
        field.name: np.load(folder / f"{field.name}.npy", mmap_mode="r").view(np.ndarray)
        for field in schema.fields
    }


class MappedBlobs(Sequence[bytes]):
    """Blobs in a memory map; a forked or spawned process maps them anew at first use."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._bounds: npt.NDArray[np.int64] | None = None

    def _open(self) -> npt.NDArray[np.int64]:
        if self._bounds is None:
            import mmap

            with open(self._folder / "blobs", "rb") as file:
                self.map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self._bounds = np.load(self._folder / "bounds.npy")
        return self._bounds

    def __len__(self) -> int:
        return len(self._open()) - 1

    def __getitem__(self, index: Any) -> Any:
        bounds = self._open()
        return self.map[bounds[index] : bounds[index + 1]]

    def values(self, indices: npt.NDArray[np.int64]) -> list[bytes]:
        """Many blobs."""
        bounds = self._open()
        starts, ends, whole = (
            bounds.take(indices).tolist(),
            bounds.take(indices + 1).tolist(),
            self.map,
        )
        return [whole[start:end] for start, end in zip(starts, ends, strict=True)]

    def __getstate__(self) -> dict[str, Any]:
        return {"_folder": self._folder, "_bounds": None}
