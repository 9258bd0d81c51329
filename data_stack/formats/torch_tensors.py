"""Reads files of ``torch.save`` without running code, and writes them in blocks.

The layout is an uncompressed zip file: ``archive/data.pkl`` names the tensors, ``archive/data/0`` … contain their bytes.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
import re
import zipfile
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.exception import ConfigError, DatasetFileCorruptError, MissingDependencyError
from data_stack.formats.column_reader import ColumnReader
from data_stack.formats.columns import ColumnsDatasetIterator, of_files_only
from data_stack.formats.numpy_arrays import WriteOnly
from data_stack.io.account import LeftOut
from data_stack.io.parsing import check_apart, reading
from data_stack.io.positional import PositionalFile
from data_stack.io.stand_ins import HEAD_BYTES, check_no_stand_in

try:
    import torch
except ImportError as error:
    raise MissingDependencyError("data_stack.formats.torch_tensors", "torch", "torch") from error

_ZIP_MAGIC = b"PK\x03\x04"
#: The names in the pickle of tensors, and other harmless names. All others that torch accepts are refused: they allocate memory
#: for data that do not exist, such as a ``bytearray`` of any size, or call functions that tensors do not need.
_NAMES_OF_TENSORS = re.compile(
    r"collections OrderedDict|torch\._utils _rebuild_(?:tensor|tensor_v2|parameter)"
    r"|torch (?:Size|\w+Storage|u?int\d+|b?float\w+|complex\d+|bool)"
)
_OTHER_NAMES = re.compile(
    r"collections Counter|torch\._utils _rebuild_(?:tensor_v3|parameter_with_state|sparse_tensor)"
    r"|torch\.serialization _get_layout|torch\.storage UntypedStorage|torch device|_codecs encode"
    r"|(?:builtins|__builtin__) (?:set|complex)"
)
_STORAGE = "torch.storage UntypedStorage"
_MAX_PICKLE_BYTES = 64 << 20


class TensorsDatasetIterator(ColumnsDatasetIterator):
    """Samples from several tensors in one ``.pt`` resource, which is read as a whole at the first access.

    Args:
        resource: a file of ``torch.save`` with a tensor, or a dict, list or tuple of them: a path, a resource or an open binary
            file.
        keys: keys of the dict, or positions in the list (0 of a single tensor), in a sequence for tuple samples or a mapping
            ``{field: key}`` for dict samples. A key may occur several times (target and tag).

    Values are copies of the tensors' rows, shape ``shape[1:]``, or Python numbers of tensors with one dimension.
    ``read_batch`` and ``read_column`` return numpy arrays; bfloat16 and other floats that numpy lacks become
    float32.

    Raises:
        DatasetFileCorruptError: at the first access: as for :func:`load_tensors`, or a tensor does not exist or has no rows.
    """

    def __init__(self, resource: Any, keys: Sequence[str | int] | Mapping[str, str | int]) -> None:
        super().__init__(keys)
        self._file = PositionalFile(resource)

    @of_files_only
    def _open_columns(self) -> list[ColumnReader]:
        tensors = tensors_of(load_tensors(self._file), self._file.name)

        def open_column(key: str | int) -> ColumnReader:
            if key not in tensors:
                raise DatasetFileCorruptError(
                    f"{self._file.name!r} has no tensor {key!r} with rows; it has {list(tensors)}"
                )
            return _TensorColumn(_with_rows(tensors[key], self._file.name))

        return self._open_each(open_column)


def tensors_of(loaded: Any, name: str) -> dict[str | int, torch.Tensor]:
    """The tensors with dimensions of the result of :func:`load_tensors`: by key, by position, or a single tensor by 0.

    Raises:
        DatasetFileCorruptError: ``loaded``, of the file ``name``, has no tensors with rows.
    """
    if isinstance(loaded, torch.Tensor):
        loaded = [loaded]
    pairs = (
        loaded.items()
        if isinstance(loaded, Mapping)
        else enumerate(loaded)
        if isinstance(loaded, (list, tuple))
        else ()
    )
    tensors = {
        key: value for key, value in pairs if isinstance(value, torch.Tensor) and value.dim()
    }
    if not tensors:
        raise DatasetFileCorruptError(
            f"{name!r} holds a {type(loaded).__name__} without tensors that have one row a sample"
        )
    return tensors


def entries_left_out(loaded: Any) -> list[LeftOut]:
    """The entries of the result of :func:`load_tensors` that are no columns: numbers, texts, lists, tensors without rows."""
    entries: Iterable[tuple[Any, Any]] = ()
    if isinstance(loaded, Mapping):
        entries = loaded.items()
    elif isinstance(loaded, (list, tuple)):
        entries = enumerate(loaded)
    return [
        LeftOut(str(key), "no tensor with one row a sample")
        for key, value in entries
        if not isinstance(value, torch.Tensor) or not value.dim()
    ]


def _with_rows(tensor: torch.Tensor, name: str) -> torch.Tensor:
    """Detach a tensor or parameter from its graph.

    Raises:
        DatasetFileCorruptError: the tensor is sparse, so it has no rows in memory; ``name`` is the file for the message.
    """
    if tensor.layout is not torch.strided:
        kind = str(tensor.layout).removeprefix("torch.").replace("_", " ")
        raise DatasetFileCorruptError(
            f"{name!r} holds a {kind} tensor, which has no rows; save tensor.to_dense(), or choose others: columns=[…]"
        )
    return tensor.detach()


class _TensorColumn(ColumnReader):
    """A column in memory as a tensor."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor

    def __len__(self) -> int:
        return len(self._tensor)

    def value(self, index: int) -> Any:
        value = self._tensor[index]
        return value.clone() if value.dim() else value.item()

    def values(self, indices: IndexArrayOfInts) -> list[Any]:
        return [self.value(index) for index in indices.tolist()]

    def read(self, indices: IndexArrayOfInts | None) -> npt.NDArray[Any]:
        rows = self._tensor.clone() if indices is None else self._tensor[torch.from_numpy(indices)]
        try:
            array: npt.NDArray[Any] = rows.numpy()
        except TypeError:  # a float of 8 or 16 bits that numpy lacks
            array = rows.to(torch.complex64 if rows.is_complex() else torch.float32).numpy()
        return array


def load_tensors(resource: Any, *, map_location: str = "cpu") -> Any:
    """Load a file of ``torch.save``: a tensor, or a dict, list or tuple of tensors and plain values.

    This is ``torch.load`` with ``weights_only=True`` after a check of the file: it must have the zip layout of torch 1.6 and
    later, uncompressed, and no tensor may claim more elements than are stored.

    Args:
        resource: the path of a file, a StreamedResource or seekable binary file.
        map_location: the device of the tensors; ``"meta"`` reads no values, only shapes and dtypes.

    Raises:
        DatasetFileCorruptError: the file is damaged, of another format, or contains more than tensors and plain values.
    """
    file = PositionalFile(resource)
    if file.read_at(0, 4) != _ZIP_MAGIC:
        check_no_stand_in(file.read_at(0, HEAD_BYTES), repr(file.name), file.size)
        raise DatasetFileCorruptError(
            f"{file.name!r} is not a file of torch.save() of torch 1.6 and later; save it again"
        )
    with reading(file.name, "file of torch.save()", file):
        if not _holds_plain_tensors(file):
            check_apart(file, f"{__name__}:_look_through", [])
        return _load(file, map_location)


def _look_through(resource: Any) -> None:
    """Parse everything except the values, which are only copied."""
    _load(PositionalFile(resource), "meta")


def _load(file: PositionalFile, map_location: str) -> Any:
    with reading(file.name, "file of torch.save()", file):
        tensors = torch.load(file.open_buffered(), weights_only=True, map_location=map_location)
        _check_storages(tensors, file.name)
    return tensors


def _holds_plain_tensors(file: PositionalFile) -> bool:
    """Refuse files that would take more memory than they have bytes, before torch reads them.

    Returns:
        Whether torch only makes tensors, lists and dicts. Other files may take any time: they call other functions, or hash
        tuples that contain the same tuple many times.
    """
    with zipfile.ZipFile(file.open_buffered()) as archive:
        members = archive.infolist()
    if any(member.compress_type != zipfile.ZIP_STORED for member in members):
        raise DatasetFileCorruptError(f"{file.name!r} is compressed, which torch.save() never does")
    if sum(member.file_size for member in members) > file.size:
        raise DatasetFileCorruptError(f"{file.name!r} claims the same bytes for several tensors")
    # by torch's reader, so that both read the same bytes
    pickled = torch._C.PyTorchFileReader(file.open_buffered()).get_record("data.pkl")
    if len(pickled) > _MAX_PICKLE_BYTES:
        raise DatasetFileCorruptError(
            f"{file.name!r} has a pickle of {len(pickled)} bytes; at most {_MAX_PICKLE_BYTES} are read"
        )
    is_plain, names_storage, before = True, False, ""
    tuples: set[int] = set()
    argument: Any
    for operation, argument, _ in pickletools.genops(pickled):
        if operation.name == "GLOBAL" and _NAMES_OF_TENSORS.fullmatch(argument) is None:
            is_plain = False
            names_storage = names_storage or argument == _STORAGE
            if argument.endswith("_qtensor"):
                raise DatasetFileCorruptError(
                    f"{file.name!r} holds a quantized tensor; save tensor.dequantize() instead"
                )
            if _OTHER_NAMES.fullmatch(argument) is None:
                raise DatasetFileCorruptError(
                    f"{file.name!r} holds a {argument.replace(' ', '.')!s:.80}, not only tensors"
                )
        elif (
            names_storage
            and isinstance(argument, int)
            and argument > file.size
            and not operation.name.endswith(("PUT", "GET"))
        ):
            # Tensors of rare dtypes name it; calling it allocates any number of bytes.
            raise DatasetFileCorruptError(
                f"{file.name!r} has {file.size} bytes and names an UntypedStorage of {argument}"
            )
        elif operation.name in ("BINPUT", "LONG_BINPUT") and before.startswith("TUPLE"):
            tuples.add(argument)
        elif operation.name in ("BINGET", "LONG_BINGET"):
            is_plain = is_plain and argument not in tuples
        before = operation.name
    return is_plain


def _check_storages(loaded: Any, name: str) -> None:
    """Refuse tensors that claim more than is stored; each object is visited once."""
    seen: set[int] = set()
    waiting = [loaded]
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, torch.Tensor) and value.layout is torch.strided:
            claimed = value.numel() * value.element_size()
            if claimed > value.untyped_storage().nbytes():
                raise DatasetFileCorruptError(
                    f"{name!r} holds a tensor of {claimed} bytes on fewer; save tensor.contiguous()"
                )
        elif isinstance(value, (Mapping, list, tuple)):
            waiting += value.values() if isinstance(value, Mapping) else value


def tensor_of(array: npt.NDArray[Any], dtype: str) -> torch.Tensor:
    """A tensor of the values of ``array``, with a dtype by its name in torch, such as ``"bfloat16"``.

    Raises:
        TypeError: torch lacks the dtype, or the dtype of the array.
    """
    torch_dtype = getattr(torch, dtype, None)
    if not isinstance(torch_dtype, torch.dtype) or not isinstance(array, np.ndarray):
        raise TypeError(
            f"expected an array and a dtype of torch, got {type(array).__name__} and {dtype!r:.40}"
        )
    return torch.from_numpy(array).to(torch_dtype)


def save_tensors(file: Any, tensors: Any) -> None:
    """``torch.save`` of ``tensors`` (a tensor, or a dict, list or tuple of them) into any binary file open for writing."""
    torch.save(tensors, file)


class _Storage:
    """Represents the bytes of the tensor in the pickle; torch reads them from ``data/0``."""

    def __init__(self, name: str, n_elements: int) -> None:
        self.persistent_id = ("storage", getattr(torch, name), "0", "cpu", n_elements)


class _Tensor:
    """Pickles as the tensor of ``shape`` on ``storage``, as by torch.save()."""

    def __init__(self, storage: _Storage, shape: tuple[int, ...]) -> None:
        self._storage, self._shape = storage, shape

    def __reduce__(self) -> tuple[Any, ...]:
        strides = torch.empty(self._shape, device="meta").stride()
        return torch._utils._rebuild_tensor_v2, (
            self._storage,
            0,
            self._shape,
            strides,
            False,
            OrderedDict(),
        )


class _Pickler(pickle.Pickler):
    def persistent_id(self, obj: Any) -> Any:
        return obj.persistent_id if isinstance(obj, _Storage) else None


def write_tensor(
    file: Any, blocks: Iterable[npt.ArrayLike], *, shape: Sequence[int], dtype: npt.DTypeLike
) -> None:
    """Write one tensor from blocks of rows, without holding all of it in memory; ``torch.load`` reads it.

    Args:
        file: any binary file open for writing; it need not be able to seek.
        blocks: arrays of shape ``(k, *shape[1:])`` that add up to ``shape``, converted to ``dtype`` if need be.
        shape: the shape of the tensor.
        dtype: bool, or an integer, float or complex dtype of torch's older versions; for example not uint16.

    Raises:
        ConfigError: the blocks do not add up to ``shape``, or ``dtype`` is unsupported.
    """
    stored_dtype: np.dtype[Any] = np.dtype(dtype).newbyteorder("<")
    try:
        kind = torch.from_numpy(np.empty(0, stored_dtype.newbyteorder("="))).type()
        storage = kind.removeprefix("torch.").replace("Tensor", "Storage")
        _Storage(storage, 0)
    except (TypeError, AttributeError) as error:
        raise ConfigError(
            f"torch.save() cannot store a tensor of dtype {stored_dtype} in this layout"
        ) from error
    whole, n_written = tuple(map(int, shape)), 0
    n_elements, pickled = math.prod(whole), io.BytesIO()
    _Pickler(pickled, protocol=2).dump(_Tensor(_Storage(storage, n_elements), whole))
    with zipfile.ZipFile(WriteOnly(file), "w", zipfile.ZIP_STORED) as archive:  # type: ignore[call-overload]  # write, flush
        archive.writestr(zipfile.ZipInfo("archive/data.pkl"), pickled.getvalue())
        archive.writestr(zipfile.ZipInfo("archive/byteorder"), b"little")
        with archive.open(zipfile.ZipInfo("archive/data/0"), "w", force_zip64=True) as stream:
            for block in blocks:
                array = np.ascontiguousarray(block, stored_dtype)
                n_written += array.size
                stream.write(array.tobytes())
        if n_written != n_elements:
            raise ConfigError(
                f"the blocks have {n_written} elements, but shape {whole} has {n_elements}"
            )
        archive.writestr(zipfile.ZipInfo("archive/version"), b"3\n")
