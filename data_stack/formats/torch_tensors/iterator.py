"""Samples from the tensors of a file of ``torch.save``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy.typing as npt
import torch

from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.column_reader import ColumnReader
from data_stack.formats.columns import ColumnsDatasetIterator, of_files_only
from data_stack.formats.torch_tensors.loading import load_tensors, tensors_of
from data_stack.io.positional import PositionalFile


class TensorsDatasetIterator(ColumnsDatasetIterator):
    """Samples from several tensors in one ``.pt`` resource.

    The resource is read as a whole at the first access.

    Args:
        resource: a file of ``torch.save`` with a tensor, or a dict, list or tuple of them: a path,
            a resource or an open binary file.
        keys: keys of the dict, or positions in the list (0 of a single tensor), in a sequence for
            tuple samples or a mapping ``{field: key}`` for dict samples. A key may occur several
            times (target and tag).

    Values are copies of the tensors' rows, shape ``shape[1:]``, or Python numbers of tensors with
    one dimension. ``read_batch`` and ``read_column`` return numpy arrays; bfloat16 and other floats
    that numpy lacks become float32.

    Raises:
        DatasetFileCorruptError: at the first access: as for
            :func:`~data_stack.formats.load_tensors`, or a tensor does not exist or has no rows.
    """

    _file: PositionalFile

    def __init__(self, resource: Any, keys: Sequence[str | int] | Mapping[str, str | int]) -> None:
        super().__init__(keys)
        self._file = PositionalFile(resource)

    @of_files_only
    def _open_columns(self) -> list[ColumnReader]:
        name = self._file.name
        tensors = tensors_of(load_tensors(self._file), name)

        def open_column(key: str | int) -> ColumnReader:
            if key not in tensors:
                raise DatasetFileCorruptError(
                    f"{name!r} has no tensor {key!r} with rows; it has {list(tensors)}"
                )
            return _TensorReader(_detach(tensors[key], name))

        return self._open_per_source(open_column)


def _detach(tensor: torch.Tensor, name: str) -> torch.Tensor:
    """Detach a tensor or parameter from its graph.

    Args:
        tensor: the tensor.
        name: the name of its file.

    Raises:
        DatasetFileCorruptError: the tensor is sparse, so it has no rows in memory.
    """
    if tensor.layout is not torch.strided:
        kind = str(tensor.layout).removeprefix("torch.").replace("_", " ")
        raise DatasetFileCorruptError(
            f"{name!r} holds a {kind} tensor, which has no rows; save tensor.to_dense(), "
            "or choose others: columns=[…]"
        )
    return tensor.detach()


class _TensorReader(ColumnReader):
    """Reads a column in memory that is a tensor."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor

    def __len__(self) -> int:
        return len(self._tensor)

    def value(self, index: int) -> Any:
        value = self._tensor[index]
        if value.dim():
            return value.clone()
        return value.item()

    def values(self, indices: IndexArrayOfInts) -> list[Any]:
        return [self.value(index) for index in indices.tolist()]

    def read(self, indices: IndexArrayOfInts | None) -> npt.NDArray[Any]:
        if indices is None:
            rows = self._tensor.clone()
        else:
            rows = self._tensor[torch.from_numpy(indices)]
        array: npt.NDArray[Any]
        try:
            array = rows.numpy()
        except TypeError:
            # A float of 8 or 16 bits that numpy lacks.
            dtype = torch.complex64 if rows.is_complex() else torch.float32
            array = rows.to(dtype).numpy()
        return array
