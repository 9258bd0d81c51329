"""The format of PyTorch's ``.pt`` files."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy.typing as npt

from data_stack.dataset.iterator import ColumnKey, DatasetIteratorIF
from data_stack.exception import ConfigError
from data_stack.formats.format import ColumnChoice
from data_stack.formats.named_arrays_format import NamedArraysFormat
from data_stack.formats.registry import register_format
from data_stack.io.account import PlaceAccount
from data_stack.io.location import Location


@register_format
class TorchFormat(NamedArraysFormat):
    """A dict of tensors."""

    name = "torch"
    suffixes = {".pt": "application/octet-stream", ".pth": "application/octet-stream"}
    # Tensors have no text.
    types = NamedArraysFormat.types - {"utf8"}

    def list_keys(
        self, resource: Any, location: Location, columns: ColumnChoice
    ) -> Sequence[ColumnKey]:
        from data_stack.formats.torch_tensors import entries_left_out, load_tensors, tensors_of

        loaded = load_tensors(resource, map_location="meta")
        tensors = tensors_of(loaded, location.full_name)
        # A user who names columns wants nothing else, so what is left out needs no warning.
        if columns.required is None:
            left_out = entries_left_out(loaded)
            PlaceAccount(location.full_name, len(tensors), tuple(left_out)).warn()
        return list(tensors)

    def open_arrays(
        self, resource: Any, keys: Mapping[str, Any], options: Any
    ) -> DatasetIteratorIF:
        from data_stack.formats.torch_tensors import TensorsDatasetIterator

        return TensorsDatasetIterator(resource, keys)

    def save(self, file: Any, columns: Mapping[str, npt.NDArray[Any]]) -> None:
        from data_stack.formats.torch_tensors import save_tensors, tensor_of

        tensors = {}
        for name, values in columns.items():
            native = values.astype(values.dtype.newbyteorder("="))
            try:
                tensors[name] = tensor_of(native, values.dtype.name)
            except TypeError as error:
                raise ConfigError(
                    f"column {name!r} is of dtype {values.dtype}, which torch does not have"
                ) from error
        # torch aborts the process if writing to a Python file fails.
        memory = io.BytesIO()
        save_tensors(memory, tensors)
        file.write(memory.getbuffer())
