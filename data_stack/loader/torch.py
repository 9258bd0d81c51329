"""Batches as torch tensors, for our loader and for torch's own."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator import Batch, DatasetIteratorIF, Sample
from data_stack.dataset.iterator.access_of_iterator import access_to
from data_stack.dataset.iterator.adapted import Indexable, as_iterator
from data_stack.dataset.iterator.detached_batches import detach
from data_stack.dataset.positions import check_indices
from data_stack.exception import ConfigError, MissingDependencyError
from data_stack.loader.conversion import (
    NUMBERS,
    Conversion,
    Pairs,
    map_nested,
    map_pairs,
    one_ahead,
    parts_of_objects,
    refuse_missing,
)
from data_stack.loader.ranks import shard_of_process as shard_of_process
from data_stack.values.stacking import list_samples, stack_samples

try:
    import torch
    from torch.nn.utils.rnn import PackedSequence
    from torch.utils.data import Dataset
except ImportError as error:
    raise MissingDependencyError("data_stack.loader.torch", "torch", "torch") from error

#: The dtypes that become tensors as they are, in this machine's byte order.
_NATIVE_DTYPES = frozenset(np.dtype(name) for name in NUMBERS)

#: Containers that are moved and pinned as a whole.
_LEAVES = (PackedSequence,)


# ---------------------------------------------------------------------- for torch's DataLoader


@dataclass(frozen=True)
class _Columns(Sequence[Any]):
    """A batch that has been read, for :func:`collate`. Other functions see its samples."""

    batch: Batch

    @functools.cached_property
    def _samples(self) -> list[Any]:
        return list_samples(self.batch)

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: Any) -> Any:
        return self._samples[index]


class TorchDataset(Dataset[Any]):
    """An iterator as a map-style dataset, of which :func:`collate` gets each batch in one request.

    ::

        loader = DataLoader(
            TorchDataset(iterator), batch_size=256, shuffle=True, num_workers=4, collate_fn=collate
        )

    Another ``collate_fn`` receives the samples of the batch, as usual. Workers may be forked, or
    spawned if the iterator pickles.

    Args:
        iterator: any iterator, or an object with ``len`` and ``[i]``; the caller closes it.
    """

    def __init__(self, iterator: DatasetIteratorIF | Indexable) -> None:
        self._iterator = as_iterator(iterator)

    def __len__(self) -> int:
        return len(self._iterator)

    def __getitem__(self, index: Any) -> Any:
        """Return the sample of the iterator at ``index``."""
        return self._iterator[index]

    def __iter__(self) -> Iterator[Any]:
        # Without it, a loop would take an IndexError of a function for the end of the samples.
        return iter(self._iterator)

    def __reversed__(self) -> Iterator[Any]:
        yield from reversed(self._iterator)

    def __getitems__(self, indices: Sequence[int]) -> _Columns:
        """Return the samples at ``indices`` as columns, for :func:`collate`.

        Raises:
            DatasetOutOfBoundsError: a position is out of range.
        """
        positions = check_indices(indices, len(self._iterator))
        return _Columns(access_to(self._iterator).batch(positions))


def collate(samples: Sequence[Sample] | _Columns) -> Any:
    """Return samples as tensors.

    Tuple samples become a tuple of tensors, dict samples a dict, bare samples one tensor. Columns
    of numbers become tensors of shape ``(n_samples, ...)`` and of their dtype, without a copy where
    possible, as in :class:`TorchConversion`. Tensors have the values, shapes and dtypes of
    ``torch.utils.data.default_collate``, with two differences: tuple samples become a tuple, not a
    list, and a list of numbers in a sample becomes a row of a tensor.

    Args:
        samples: what :class:`TorchDataset` returns, or a list of samples of any other dataset; at
            least one.

    Raises:
        ConfigError: ``samples`` is empty, samples differ in their number of columns or in their
            keys, or a column of numbers has samples without a value (None).
    """
    if isinstance(samples, _Columns):
        return TorchConversion().convert(detach(samples.batch))
    if len(samples) == 0:
        raise ConfigError("cannot collate an empty list of samples")
    return TorchConversion().convert(detach(stack_samples(samples)))


# ---------------------------------------------------------------------- for trainers


class _LoaderOfSteps(Protocol):
    """What a ``TorchLoader`` has for :class:`StepSampler` and :class:`BatchDataset`."""

    @property
    def n_samples(self) -> int: ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Any]: ...

    def begin_training_epoch(self, epoch: int) -> None: ...

    def seek_step(self, step: int) -> None: ...


class StepSampler:
    """The numbers of the batches of a loader's iteration, as a sampler of batches.

    Args:
        loader: the loader.
    """

    def __init__(self, loader: _LoaderOfSteps) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[list[int]]:
        for step in range(len(self)):
            yield [step]

    def __len__(self) -> int:
        return len(self._loader)

    def set_epoch(self, epoch: int) -> None:
        """Let the loader begin an epoch of a trainer, see ``TorchLoader.begin_training_epoch``."""
        self._loader.begin_training_epoch(epoch)


class BatchDataset(Dataset[Any]):
    """The batches of a loader's iteration by their numbers.

    It is for a ``DataLoader`` with a :class:`StepSampler`. Batches in a row are those of one
    iteration of the loader, made by its workers ahead; another number begins an iteration there.
    Use it in the process of the loader.

    Args:
        loader: the loader.
    """

    #: The loader.
    _loader: _LoaderOfSteps
    #: The current iteration of the loader; None if there is none.
    _batches: Iterator[Any] | None
    #: The number of the iteration's next batch.
    _next_step: int

    def __init__(self, loader: _LoaderOfSteps) -> None:
        self._loader = loader
        self._batches = None
        self._next_step = 0

    def __len__(self) -> int:
        """Return the number of samples of an epoch."""
        return self._loader.n_samples

    def __getitem__(self, step: int) -> Any:
        """Return the batch of a step."""
        return self.__getitems__([step])

    def __getitems__(self, steps: Sequence[int]) -> Any:
        """Return the batch of the only one of ``steps``.

        Raises:
            ConfigError: there are several steps.
        """
        if len(steps) != 1:
            raise ConfigError(
                f"each batch of a loader is one step, got the steps {list(steps)!r:.80}"
            )
        (step,) = steps
        if self._batches is None or step != self._next_step:
            self._loader.seek_step(step)
            self._batches = iter(self._loader)
        # The last batch ends the iteration, and the next one may have another number of batches.
        n_steps = len(self._loader)
        batch = next(self._batches)
        self._next_step = step + 1
        if self._next_step == n_steps:
            next(self._batches, None)  # ends the iteration, and its workers
            self._batches = None
        return batch


# ---------------------------------------------------------------------- conversion


class TorchConversion(Conversion):
    """Converts the batches of a loader to torch tensors, maybe on a device: ``loader.torch()``.

    Arrays of numbers become tensors of their shape and dtype on the same memory; arrays that torch
    cannot share (read-only, with negative strides or the other byte order) are copied. Other
    values, such as strings and dates, become a list; arrays of different shapes become a list of
    tensors. Tensors of a ``collate`` or ``transform`` and containers (tuples, dicts, lists,
    dataclasses, nested or not) stay as they are. So ragged columns have tensors for values and
    offsets: ``torch.nested.nested_tensor_from_jagged(ragged.values, ragged.offsets)`` is torch's
    own ragged tensor on the same memory.

    **Devices.** With a device, the copy of each batch starts one batch ahead, so that it overlaps
    with the training step: on CUDA in a side stream, which the consumer's current stream waits for
    when it receives the batch. The copy is asynchronous only from page-locked memory, see
    ``pin_memory`` (one more copy in main memory, in the consumer's thread). Two batches are on the
    device at a time, besides those that the consumer keeps.

    Args:
        device: an argument of ``torch.device``; None leaves tensors where they are.
        pin_memory: whether to copy tensors to page-locked memory first; without CUDA it has no
            effect, as in torch's DataLoader.

    Raises:
        ConfigError: the device does not exist. While iterating: a column of numbers or arrays has
            samples without a value (None).
    """

    name = "torch tensors"

    #: The target device; None leaves tensors where they are.
    device: torch.device | None
    #: Whether to copy tensors to page-locked memory.
    _pins_memory: bool

    def __init__(self, *, device: Any = None, pin_memory: bool = False) -> None:
        self.device = None if device is None else _parse_device(device)
        self._pins_memory = bool(pin_memory) and torch.cuda.is_available()

    def convert(self, batch: Any) -> Any:
        refuse_missing(batch, self.name)
        tensors = map_nested(batch, _as_tensor, _LEAVES)
        if self._pins_memory:
            tensors = map_nested(tensors, _pin, _LEAVES)
        return tensors

    def convert_all(self, pairs: Pairs) -> Pairs:
        converted = super().convert_all(pairs)
        if self.device is None:
            return converted
        if self.device.type == "cuda":
            copier = _CudaCopier(self.device)
            sent = map_pairs(converted, copier.send)
            return map_pairs(one_ahead(sent), copier.receive)
        return one_ahead(map_pairs(converted, functools.partial(_copy_to, self.device)))


def _parse_device(argument: Any) -> torch.device:
    """Return a device.

    Raises:
        ConfigError: torch does not know it, or it is not there.
    """
    try:
        device = torch.device(argument)
    except (RuntimeError, TypeError) as error:
        raise ConfigError(
            f"torch does not know the device {argument!r:.80}; use for example 'cuda', 'cuda:1', "
            f"'mps' or 'cpu': {error}"
        ) from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            f"device {str(device)!r} is not available: torch {torch.__version__} finds no CUDA; "
            "use 'cpu', or check the driver"
        )
    return device


# ---------------------------------------------------------------------- copies to a device


def _copy_to(device: torch.device, batch: Any) -> Any:
    """Start the copy of a batch to a device other than a GPU of CUDA."""
    # torch does not synchronise readers of main memory: a copy to there must not be asynchronous.
    is_asynchronous = device.type != "cpu"

    def start_copy(value: Any) -> Any:
        if not hasattr(value, "to"):
            return value
        return value.to(device=device, non_blocking=is_asynchronous)

    return map_nested(batch, start_copy, _LEAVES)


class _SentBatch(NamedTuple):
    """A batch whose copy to a GPU has been started.

    Attributes:
        batch: the batch, with tensors on the GPU.
        event: marks the end of the copy.
    """

    batch: Any
    event: torch.cuda.Event


class _CudaCopier:
    """Copies in a side stream.

    See https://docs.pytorch.org/docs/stable/notes/cuda.html#cuda-streams.

    Args:
        device: a GPU.
    """

    def __init__(self, device: torch.device) -> None:
        # torch's stubs say that a device always has an index; torch.device("cuda") has none.
        has_index = getattr(device, "index", None) is not None
        self._device = device if has_index else torch.device("cuda", torch.cuda.current_device())
        self._stream = _side_stream(self._device)

    def send(self, batch: Any) -> _SentBatch:
        """Start the copy of a batch."""
        with torch.cuda.stream(self._stream):
            copied = map_nested(batch, self._start_copy, _LEAVES)
            return _SentBatch(copied, self._stream.record_event())

    def receive(self, sent: _SentBatch) -> Any:
        """Return the copy, for use in the consumer's current stream."""
        current_stream = torch.cuda.current_stream(self._device)
        current_stream.wait_event(sent.event)

        def hand_over(value: Any) -> Any:
            if _is_plain_tensor(value) and value.device == self._device:
                # Otherwise the next copy could reuse the memory as soon as the consumer drops the
                # tensor, although queued kernels still read it.
                value.record_stream(current_stream)
                return value
            return value.to(self._device) if hasattr(value, "to") else value

        return map_nested(sent.batch, hand_over, _LEAVES)

    def _start_copy(self, value: Any) -> Any:
        # Tensors that a transform made on a device belong to another stream, which this one does
        # not wait for; and the memory of other objects is unknown to record_stream. Both are copied
        # in receive().
        if _is_plain_tensor(value) and value.device.type == "cpu":
            return value.to(self._device, non_blocking=True)
        return value


@functools.cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    """Return the stream of all copies to a device.

    All loaders share it, because the allocator keeps memory per stream.
    """
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch annotates nothing


# ---------------------------------------------------------------------- values as tensors


def _as_tensor(value: Any) -> Any:
    """Return an array as a tensor; a list if torch has no such tensor; other values as they are."""
    if isinstance(value, np.ndarray):
        return _array_as_tensor(value)
    if isinstance(value, np.generic) and value.dtype.str[1:] in NUMBERS:
        return _tensor_on(np.array(value))
    return value


def _array_as_tensor(array: npt.NDArray[Any]) -> Any:
    # The most frequent case comes first.
    flags = array.flags
    if array.dtype in _NATIVE_DTYPES and flags.c_contiguous and flags.writeable:
        return _tensor_on(array)
    if array.dtype == object:
        return _objects_as_tensor(array)
    if array.dtype.str[1:] not in NUMBERS:
        is_text = array.dtype.kind in "SU"
        return array.tolist() if is_text or array.ndim == 0 else list(array)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if not _is_shareable(array):
        array = array.copy()
    return _tensor_on(array)


def _objects_as_tensor(column: npt.NDArray[Any]) -> Any:
    """Return a column of objects as nested tensors, or as one tensor if all have one type."""
    parts = map_nested(parts_of_objects(column), _as_tensor, _LEAVES)
    if not isinstance(parts, list) or not parts:
        return parts
    if not all(isinstance(part, torch.Tensor) for part in parts):
        return parts
    # Values of numpy's dtypes are one array already; these are tensors of the samples. Tensors of
    # several dtypes stay a list, as torch would round: int64 to float32.
    tensor_types = {(part.dtype, part.shape) for part in parts}
    return torch.stack(parts) if len(tensor_types) == 1 else parts


def _is_shareable(array: npt.NDArray[Any]) -> bool:
    """Return whether torch can use an array's memory.

    It refuses read-only arrays, negative strides, and fields of records.
    """
    if not array.flags.writeable:
        return False
    return all(stride >= 0 and stride % array.itemsize == 0 for stride in array.strides)


def _tensor_on(array: npt.NDArray[Any]) -> torch.Tensor:
    """Return a tensor on an array's memory."""
    # numpy has two int64 types (long and long long), torch accepts one of them.
    if array.dtype.char in "qQ":
        array = array.view(array.dtype.str)
    return torch.from_numpy(array)


def _pin(value: Any) -> Any:
    """Return a value in page-locked memory, if it knows how to get there."""
    if isinstance(value, torch.Tensor):
        is_pinnable = _is_plain_tensor(value) and value.device.type == "cpu"
        return value.pin_memory() if is_pinnable else value
    # torch's DataLoader asks unknown types as well.
    return value.pin_memory() if hasattr(value, "pin_memory") else value


def _is_plain_tensor(value: Any) -> bool:
    """Return whether a value is a strided tensor, not a sparse or nested one."""
    return isinstance(value, torch.Tensor) and value.layout == torch.strided
