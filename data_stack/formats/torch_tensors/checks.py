"""Checks files of ``torch.save`` before and after torch reads them."""

from __future__ import annotations

import pickletools
import re
import zipfile
from collections.abc import Mapping
from typing import Any, Final

import torch

from data_stack.exception import DatasetFileCorruptError
from data_stack.io.positional import PositionalFile

#: The names in the pickle of tensors.
_NAMES_OF_TENSORS: Final = re.compile(
    r"collections OrderedDict|torch\._utils _rebuild_(?:tensor|tensor_v2|parameter)"
    r"|torch (?:Size|\w+Storage|u?int\d+|b?float\w+|complex\d+|bool)"
)

#: Other harmless names. All others that torch accepts are refused: they allocate memory for data
#: that do not exist, such as a ``bytearray`` of any size, or call functions that tensors do not
#: need.
_OTHER_NAMES: Final = re.compile(
    r"collections Counter|torch\._utils _rebuild_(?:tensor_v3|parameter_with_state|sparse_tensor)"
    r"|torch\.serialization _get_layout|torch\.storage UntypedStorage|torch device|_codecs encode"
    r"|(?:builtins|__builtin__) (?:set|complex)"
)

#: The name of the storage of tensors of rare dtypes. Calling it allocates any number of bytes.
_STORAGE: Final = "torch.storage UntypedStorage"

#: The maximum size of the pickle that names the tensors.
_MAX_PICKLE_BYTES: Final = 64 << 20


def check_archive(file: PositionalFile) -> None:
    """Check that the archive of a file has the layout that ``torch.save`` writes.

    Raises:
        DatasetFileCorruptError: it would take more memory than it has bytes.
    """
    with zipfile.ZipFile(file.open_buffered()) as archive:
        members = archive.infolist()
    if any(member.compress_type != zipfile.ZIP_STORED for member in members):
        raise DatasetFileCorruptError(f"{file.name!r} is compressed, which torch.save() never does")
    if sum(member.file_size for member in members) > file.size:
        raise DatasetFileCorruptError(f"{file.name!r} claims the same bytes for several tensors")


def holds_plain_tensors(file: PositionalFile) -> bool:
    """Return whether torch only makes tensors, lists and dicts of a file.

    Other files may take any time: they call other functions, or hash tuples that contain the same
    tuple many times.

    Raises:
        DatasetFileCorruptError: the file holds more than tensors and plain values.
    """
    # torch's own reader unpacks the pickle, so that torch and this check read the same bytes.
    pickled = torch._C.PyTorchFileReader(file.open_buffered()).get_record("data.pkl")
    if len(pickled) > _MAX_PICKLE_BYTES:
        raise DatasetFileCorruptError(
            f"{file.name!r} has a pickle of {len(pickled)} bytes; "
            f"at most {_MAX_PICKLE_BYTES} are read"
        )
    is_plain = True
    names_storage = False
    # The numbers of tuples in the pickle's memo, in which it keeps objects that it uses again.
    memo_of_tuples: set[int] = set()
    name_before = ""
    argument: Any
    for operation, argument, _ in pickletools.genops(pickled):
        name = operation.name
        if name == "GLOBAL" and _NAMES_OF_TENSORS.fullmatch(argument) is None:
            # A name that tensors do not need.
            _check_name(file, argument)
            is_plain = False
            names_storage = names_storage or argument == _STORAGE
        elif names_storage and _is_number_above(operation, argument, file.size):
            # The number may be the size of the storage, for which torch would allocate memory.
            raise DatasetFileCorruptError(
                f"{file.name!r} has {file.size} bytes and names an UntypedStorage of {argument}"
            )
        elif name in ("BINPUT", "LONG_BINPUT") and name_before.startswith("TUPLE"):
            # The tuple that was just made is put into the memo ...
            memo_of_tuples.add(argument)
        elif name in ("BINGET", "LONG_BINGET") and argument in memo_of_tuples:
            # ... and used again, perhaps within another tuple.
            is_plain = False
        name_before = name
    return is_plain


def _check_name(file: PositionalFile, name: str) -> None:
    """Check that a name in a pickle that tensors do not need is harmless.

    Raises:
        DatasetFileCorruptError: the name is not harmless, or is that of a quantized tensor.
    """
    if name.endswith("_qtensor"):
        raise DatasetFileCorruptError(
            f"{file.name!r} holds a quantized tensor; save tensor.dequantize() instead"
        )
    if _OTHER_NAMES.fullmatch(name) is None:
        raise DatasetFileCorruptError(
            f"{file.name!r} holds a {name.replace(' ', '.')!s:.80}, not only tensors"
        )


def _is_number_above(operation: Any, argument: Any, limit: int) -> bool:
    """Return whether an operation of a pickle makes an integer above a limit."""
    is_of_memo = operation.name.endswith(("PUT", "GET"))
    return not is_of_memo and isinstance(argument, int) and argument > limit


def check_storages(loaded: Any, name: str) -> None:
    """Check that no tensor claims more bytes than its storage has.

    Args:
        loaded: what torch made of a file.
        name: the name of the file, for messages.

    Raises:
        DatasetFileCorruptError: a tensor claims more.
    """
    # Each object is visited once: lists may contain each other many times, or themselves.
    seen: set[int] = set()
    values_to_visit = [loaded]
    while values_to_visit:
        value = values_to_visit.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, torch.Tensor) and value.layout is torch.strided:
            n_claimed_bytes = value.numel() * value.element_size()
            if n_claimed_bytes > value.untyped_storage().nbytes():
                raise DatasetFileCorruptError(
                    f"{name!r} holds a tensor of {n_claimed_bytes} bytes on fewer; "
                    "save tensor.contiguous()"
                )
        elif isinstance(value, Mapping):
            values_to_visit.extend(value.values())
        elif isinstance(value, (list, tuple)):
            values_to_visit.extend(value)
