"""Files of ``torch.save``."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Mapping, Sequence
from typing import Any

from data_stack.exception import ConfigError
from data_stack.formats.conversion.format import register_format
from data_stack.formats.conversion.one_file import INTEGERS, OneFileFormat, open_columns
from data_stack.formats.conversion.source import Source
from data_stack.io.folder import Folder
from data_stack.io.location import Location


@register_format
class TorchFormat(OneFileFormat):
    """A dict of tensors; also read from a folder with a tensor in each file."""

    name = "torch"
    suffixes = dict.fromkeys((".pt", ".pth"), "application/octet-stream")
    types = ("array", "npy", *INTEGERS)

    def recognizes(self, folder: Folder, names: Sequence[str]) -> bool:
        return any(name.endswith(tuple(self.suffixes)) for name in names)

    def open(self, location: Location) -> Source:
        from data_stack.formats.torch_tensors import TensorsDatasetIterator, TorchDatasetIterator, load_tensors, tensors_of

        with contextlib.ExitStack() as stack:
            if location.is_file():
                resource = stack.enter_context(location.open())
                tensors = tensors_of(load_tensors(resource, map_location="meta"), location.full_name)
                keys = {(key if isinstance(key, str) else f"column_{key}"): key for key in tensors}
                return open_columns(location, TensorsDatasetIterator(resource, keys), list(keys), stack)
            folder = location.as_folder()
            names = [name for name in folder.list_names() if name.endswith(tuple(self.suffixes))]
            files = {name.rpartition(".")[0]: stack.enter_context(folder.open(name)) for name in names}
            return open_columns(location, TorchDatasetIterator(files), list(files), stack)

    def save(self, file: Any, columns: Mapping[str, Any]) -> None:
        from data_stack.formats.torch_tensors import save_tensors, tensor_of

        tensors = {}
        for name, values in columns.items():
            try:
                tensors[name] = tensor_of(values.astype(values.dtype.newbyteorder("=")), values.dtype.name)
            except TypeError as error:
                raise ConfigError(f"column {name!r} is of dtype {values.dtype}, which torch does not have") from error
        memory = io.BytesIO()  # torch aborts the process if writing to a Python file fails
        save_tensors(memory, tensors)
        file.write(memory.getbuffer())
