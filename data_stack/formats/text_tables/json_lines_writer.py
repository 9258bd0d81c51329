"""Writes JSON lines files that :func:`data_stack.from_jsonl` reads with the same values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.exception import ArgumentError


class JsonLinesWriter:
    """Writes the batches of a dataset as JSON objects, one for each sample.

    Args:
        file: a binary file, open for writing.
    """

    #: The number of lines that were written.
    _n_lines: int

    def __init__(self, file: Any) -> None:
        self._file = file
        self._n_lines = 0

    def write(self, batch: Mapping[str, npt.NDArray[Any]]) -> None:
        """Write the samples of a batch.

        Raises:
            ConfigError: JSON has no such value; the message names column and sample.
        """
        columns = [self._texts_of(name, values) for name, values in batch.items()]
        names = [json.dumps(name, ensure_ascii=False) for name in batch]
        lines = []
        for texts in zip(*columns, strict=True):
            pairs = [f"{name}: {text}" for name, text in zip(names, texts, strict=True)]
            lines.append("{" + ", ".join(pairs) + "}\n")
        self._file.write("".join(lines).encode())
        self._n_lines += len(lines)

    def _texts_of(self, name: str, values: npt.NDArray[Any]) -> list[str]:
        """Return the values of a column as JSON."""
        texts = []
        for position, value in enumerate(values, self._n_lines):
            try:
                text = json.dumps(_as_json(value), ensure_ascii=False, allow_nan=False)
                text.encode()
            except (TypeError, ValueError) as error:
                raise ArgumentError(
                    f"JSON cannot hold column {name!r}, sample {position}: {error!s:.200}; "
                    "map it, or leave it out of",
                    "columns",
                ) from error
            texts.append(text)
        return texts


def _as_json(value: Any) -> Any:
    """Return a value of numpy as one of Python, and any other value as it is.

    Raises:
        TypeError: readers would make a list of an array with several dimensions.
    """
    if isinstance(value, np.ndarray) and value.ndim > 1:
        raise TypeError(f"an array of shape {value.shape}, which would be read as lists")
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    return value
