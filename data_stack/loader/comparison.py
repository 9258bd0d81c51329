"""Compares what a worker process makes and has with what this process makes and has."""

from __future__ import annotations

import contextlib
import dataclasses
import random
import struct
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest
from typing import Any, Final

import numpy as np

from data_stack.exception import LoadingError
from data_stack.loader.jobs import BatchMaker, Job
from data_stack.processes.pickling import dump, load
from data_stack.processes.seeding import loaded_torch

#: Stands for the column of a batch that is one array.
_WHOLE: Final = object()

#: How deep values may lie in each other. Deeper ones count as equal: they are rare, and cycles
#: would not end.
_MAX_DEPTH = 40

_MAX_VALUE_LENGTH = 60

#: Members of the largest container that counts as a plain value.
_MAX_MEMBERS = 100


@dataclasses.dataclass(frozen=True, slots=True)
class Difference:
    """The first difference of two batches.

    Attributes:
        place: where it is, such as ``"column 'x', row 3"``; "the batch" for a bare array.
        one: a short text of the first batch's value there.
        other: a short text of the second batch's value there.
    """

    place: str
    one: str
    other: str


def find_difference(one: Any, other: Any) -> Difference | None:
    """Return the first difference of two batches or values; None if they are the same.

    Arrays and tensors are compared by dtype, shape and bytes (the bits of NaN do not count),
    containers by type, order and content, other objects by what pickling keeps of them.
    """
    return next(iter(_differing_columns(one, other).values()), None)


def _differing_columns(one: Any, other: Any) -> dict[Any, Difference]:
    """The first difference of each column that differs, by its key or number."""
    columns = _columns(one)
    other_columns = _columns(other)
    differences = {}
    for key, column in columns.items():
        if key in other_columns:
            place = "the batch" if key is _WHOLE else f"column {key!r}"
            difference = _compare(column, other_columns[key], place, 0)
            if difference is not None:
                differences[key] = difference
    outer_difference = _compare_types(one, other, "the batch")
    if outer_difference is None and list(columns) != list(other_columns):
        outer_difference = Difference(
            "the columns of the batch",
            describe_value(list(columns)),
            describe_value(list(other_columns)),
        )
    if outer_difference is not None:
        differences.setdefault(_WHOLE, outer_difference)
    return differences


def _columns(batch: Any) -> dict[Any, Any]:
    if isinstance(batch, Mapping):
        return dict(batch)
    if isinstance(batch, tuple):
        return dict(enumerate(batch))
    return {_WHOLE: batch}


@dataclasses.dataclass(frozen=True, slots=True)
class MadeHere:
    """How a batch that this process makes differs from that of a worker.

    Attributes:
        difference: what differs, in words; None if nothing does.
        error: why this process could not make the batch, if it could not.
    """

    difference: str | None
    error: LoadingError | None = None


def make_here(maker: BatchMaker, job: Job, batch: Any) -> MadeHere:
    """Make a batch in this process, and compare it with the one that a worker process made.

    Columns that differ in this process as well if it makes them twice are drawn by themselves, and
    not compared. The global generators of random numbers stay as they are.

    Args:
        maker: makes the batch.
        job: of the batch.
        batch: of the worker; None if it could not make the batch.
    """
    with _generators_kept():
        try:
            own = maker.make(job).batch
        except LoadingError as error:
            if batch is None:
                return MadeHere(None)
            return MadeHere(
                f"this process cannot make it, as {error.problem}: {error.cause}", error
            )
        if batch is None:
            return MadeHere("the worker cannot make it")
        differences = _differing_columns(_as_received(own), batch)
        if not differences:
            return MadeHere(None)
        try:
            again = maker.make(job).batch
        except LoadingError:  # not the first time, so that the function does not do the same twice
            return MadeHere(None)
        own_differences = _differing_columns(_as_received(own), _as_received(again))
    for key, difference in differences.items():
        if key not in own_differences:
            return MadeHere(
                f"{difference.place} is {difference.other} there, {difference.one} here"
            )
    return MadeHere(None)


def _as_received(batch: Any) -> Any:
    """A batch as it would come from a worker; as it is if it cannot be sent."""
    try:
        return load(*dump(batch))
    except Exception:  # noqa: BLE001  # any error of an object
        return batch


@contextlib.contextmanager
def _generators_kept() -> Iterator[None]:
    """Leave the global generators of ``random``, numpy and torch as they were."""
    numpy_state = np.random.get_state()
    state = random.getstate()
    torch = loaded_torch()
    torch_state = None if torch is None else torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(state)
        np.random.set_state(numpy_state)
        if torch is not None:
            torch.set_rng_state(torch_state)


def _compare(one: Any, other: Any, place: str, depth: int) -> Difference | None:
    if one is other or depth > _MAX_DEPTH:
        return None
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return _compare_arrays(one, other, place, depth)
    difference = _compare_types(one, other, place)
    if difference is not None:
        return difference
    if isinstance(one, np.generic):
        return _compare_arrays(np.asarray(one), np.asarray(other), place, depth)
    if isinstance(one, float):
        is_same = struct.pack("d", one) == struct.pack("d", other) or (
            one != one and other != other
        )
        return None if is_same else _difference(place, one, other)
    if isinstance(one, complex):
        return _compare_all((one.real, one.imag), (other.real, other.imag), place, depth)
    if isinstance(one, (str, bytes, bytearray, int, type(None), types.ModuleType)):
        return None if one == other else _difference(place, one, other)
    if isinstance(one, (type, types.FunctionType, types.BuiltinFunctionType)):
        is_same = (one.__module__, one.__qualname__) == (other.__module__, other.__qualname__)
        return None if is_same else _difference(place, one, other)
    if isinstance(one, (set, frozenset)):
        return None if one == other else _difference(place, one, other)
    if type(one) is dict:
        return _compare_keys(one, other, place) or _compare_all(
            one.values(), other.values(), place, depth, list(one)
        )
    if type(one) in (list, tuple):
        return _compare_all(one, other, place, depth)
    torch = loaded_torch()
    if torch is not None and isinstance(one, torch.Tensor):
        return _compare_tensors(one, other, place, depth)
    return _compare_objects(one, other, place, depth)


def _compare_types(one: Any, other: Any, place: str) -> Difference | None:
    if type(one) is type(other):
        return None
    # A class of a script or notebook that has been sent by value is another one, of the same name.
    is_same = (type(one).__module__, type(one).__qualname__) == (
        type(other).__module__,
        type(other).__qualname__,
    )
    if is_same:
        return None
    return Difference(
        place, describe_value(one, with_type=True), describe_value(other, with_type=True)
    )


def _compare_keys(
    one: Mapping[Any, Any], other: Mapping[Any, Any], place: str
) -> Difference | None:
    if list(one) == list(other):
        return None
    return Difference(
        f"the keys of {place}", describe_value(list(one)), describe_value(list(other))
    )


def _compare_all(
    values: Iterable[Any],
    others: Iterable[Any],
    place: str,
    depth: int,
    keys: Iterable[Any] | None = None,
) -> Difference | None:
    """Compare the values of two containers in turn."""
    missing = object()
    names = iter(keys) if keys is not None else None
    for number, (value, other) in enumerate(zip_longest(values, others, fillvalue=missing)):
        name = number if names is None else next(names, number)
        if value is missing or other is missing:
            return Difference(
                f"the length of {place}",
                f"at most {number}" if value is missing else f"more than {number}",
                f"at most {number}" if other is missing else f"more than {number}",
            )
        difference = _compare(value, other, f"{place}, {name!r:.30}", depth + 1)
        if difference is not None:
            return difference
    return None


def _compare_arrays(one: Any, other: Any, place: str, depth: int) -> Difference | None:
    if one.dtype != other.dtype or one.shape != other.shape:
        return Difference(place, f"{one.dtype} {one.shape}", f"{other.dtype} {other.shape}")
    if isinstance(one, np.ma.MaskedArray) and isinstance(other, np.ma.MaskedArray):
        pairs = (one.data, np.ma.getmaskarray(one)), (other.data, np.ma.getmaskarray(other))
        return _compare_all(*pairs, place, depth)
    one = np.asarray(one)
    other = np.asarray(other)
    if one.dtype == object:
        return _compare_all(one.ravel(), other.ravel(), place, depth)
    if one.dtype.names is not None:
        for name in one.dtype.names:  # the bytes between fields are any
            difference = _compare(one[name], other[name], f"{place}, field {name!r}", depth + 1)
            if difference is not None:
                return difference
        return None
    bytes_of_one = _rows_of_bytes(one)
    bytes_of_other = _rows_of_bytes(other)
    differs = (bytes_of_one != bytes_of_other).any(axis=1)
    if differs.any() and one.dtype.kind in "fc":
        flat_one = one.ravel()
        flat_other = other.ravel()
        differs &= ~(np.isnan(flat_one) & np.isnan(flat_other))
    if not differs.any():
        return None
    first = int(np.argmax(differs))
    position = np.unravel_index(first, one.shape)
    if position:
        place = f"{place}, row {int(position[0])}"
    return _difference(place, one.ravel()[first].item(), other.ravel()[first].item())


def _rows_of_bytes(array: Any) -> Any:
    """The bytes of an array's elements, shape ``(size, itemsize)``."""
    elements = np.ascontiguousarray(array).reshape(-1)
    if array.dtype.itemsize == 0:
        return np.zeros((array.size, 0), dtype=np.uint8)
    return elements.view(np.uint8).reshape(array.size, array.dtype.itemsize)


def _compare_tensors(one: Any, other: Any, place: str, depth: int) -> Difference | None:
    torch = sys.modules["torch"]
    kind = one.dtype, tuple(one.shape), one.device, one.layout, one.requires_grad
    other_kind = other.dtype, tuple(other.shape), other.device, other.layout, other.requires_grad
    if kind != other_kind:
        return Difference(place, f"{one.dtype} {kind[1]}", f"{other.dtype} {other_kind[1]}")
    is_plain = one.layout is torch.strided and not one.is_quantized and not one.is_nested
    if not is_plain:
        return _compare_objects(one, other, place, depth)
    return _compare_arrays(_numpy_of(one), _numpy_of(other), place, depth)


def _numpy_of(tensor: Any) -> Any:
    """A tensor's values as an array, or its bytes if numpy has no such dtype."""
    torch = sys.modules["torch"]
    values = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    try:
        return values.numpy()
    except TypeError:
        return values.reshape(-1).view(torch.uint8).numpy()


def _compare_objects(one: Any, other: Any, place: str, depth: int) -> Difference | None:
    """Compare what pickling keeps of two objects of one class."""
    try:
        parts = one.__reduce_ex__(4)
        other_parts = other.__reduce_ex__(4)
    except Exception:  # noqa: BLE001  # it was sent all the same, by a function of its own
        return None
    if isinstance(parts, str) or isinstance(other_parts, str):
        return None if parts == other_parts else _difference(place, one, other)
    for part, other_part in zip_longest(parts, other_parts):
        if isinstance(part, types.GeneratorType) or hasattr(part, "__next__"):
            difference = _compare_all(part, other_part, place, depth)
        else:
            difference = _compare(part, other_part, place, depth + 1)
        if difference is not None:
            return Difference(difference.place, describe_value(one), describe_value(other))
    return None


def _difference(place: str, one: Any, other: Any) -> Difference:
    one_text = describe_value(one)
    other_text = describe_value(other)
    if one_text == other_text:
        one_text = describe_value(one, with_type=True)
        other_text = describe_value(other, with_type=True)
    return Difference(place, one_text, other_text)


def describe_value(value: Any, *, with_type: bool = False) -> str:
    """Return a short text for a value."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  # the __repr__ of a user's class may raise anything
        text = "an object"
    if len(text) > _MAX_VALUE_LENGTH:
        text = f"{text[:_MAX_VALUE_LENGTH]}…"
    return f"{text} ({type(value).__name__})" if with_type else text


#: Packages whose modules hold no settings of the user's functions, and many counters.
_LIBRARIES = frozenset(
    {*sys.stdlib_module_names, "data_stack", "numpy", "torch", "pandas", "pyarrow"}
)

_MAX_MODULES = 300


def plain_values(modules: Iterable[str], *, with_others: bool = True) -> dict[tuple[str, str], Any]:
    """Return the plain values of modules: numbers, texts, and tuples, lists and dicts of them.

    Args:
        modules: the names of modules; those that are not imported here are left out.
        with_others: whether to add the modules that these use, and so on.

    Returns:
        The value of each module and name.
    """
    waiting = list(modules)
    seen = set(waiting)
    values: dict[tuple[str, str], Any] = {}
    while waiting and len(seen) <= _MAX_MODULES:
        module_name = waiting.pop(0)
        module = sys.modules.get(module_name)
        if module is None or module_name.partition(".")[0] in _LIBRARIES:
            continue
        for name, value in list(vars(module).items()):
            if name.startswith("__"):
                continue
            if _is_plain(value):
                values[module_name, name] = value
                continue
            used = value.__name__ if isinstance(value, types.ModuleType) else None
            if isinstance(value, (type, types.FunctionType)):
                used = value.__module__
            if with_others and isinstance(used, str) and used not in seen:
                seen.add(used)
                waiting.append(used)
    return values


def _is_plain(value: Any, depth: int = 3) -> bool:
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return True
    if depth and type(value) in (tuple, list) and len(value) <= _MAX_MEMBERS:
        return all(_is_plain(member, depth - 1) for member in value)
    if depth and type(value) is dict and len(value) <= _MAX_MEMBERS:
        members = [*value, *value.values()]
        return all(_is_plain(member, depth - 1) for member in members)
    return False
