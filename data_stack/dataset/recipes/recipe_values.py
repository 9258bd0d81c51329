"""Arguments of layers as plain data: exactly for a recipe, by digests for a fingerprint."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.codecs.plain_data import canonical_json, to_plain
from data_stack.dataset.meta import DatasetMeta, DatasetMetaIF, IteratorMeta, MetaFactory
from data_stack.dataset.positions import ComputedPositions, as_index_array, narrow
from data_stack.dataset.recipes.functions import describe_unnamed, shorten, write_function
from data_stack.exception import ConfigError, DataStackError
from data_stack.values.digests import sample_digest
from data_stack.values.stacked_values import as_array

_N_PROBED = 8

_SAME_AS_ARGUMENTS: tuple[type[np.generic], ...] = (np.bool_, np.integer, np.float64)


@dataclass(frozen=True)
class PartialContent:
    """Content that is not complete: it may be equal for different samples, or be valid in this process only.

    Attributes:
        content: plain data, as far as it is known.
        reason: what is unknown.
    """

    content: Any
    reason: str


def write(value: Any, why_not: list[str], *, of_samples: bool = False) -> Any:
    """``value`` as plain data from which :func:`data_stack.from_recipe` makes it again.

    Args:
        value: what a layer was made with.
        why_not: gets a sentence for each part of it that nothing can be made of.
        of_samples: whether these are samples, whose numbers of numpy keep their dtype; as arguments they become Python's.
    """
    same = () if of_samples else _SAME_AS_ARGUMENTS

    def special(value: Any) -> Any:
        kind, array = _array_of(_write_out(value)) or ("records", None)
        if kind != "records":
            return (
                to_plain(array)
                if kind == "array"
                else {"tensor": {"dtype": kind, "values": to_plain(array)}}
            )
        return _describe(value, lambda other: write(other, why_not), why_not, to_rebuild=True)

    return to_plain(value, special, lambda other: _plain_scalar(other, same))


def content_of(value: Any, *, of_samples: bool = False, reasons: list[str] | None = None) -> Any:
    """Plain data that is equal for equal values, in which arrays and bytes stand by their SHA-256: for fingerprints.

    Args:
        value: anything.
        of_samples: whether these are samples, where an int and an integer of numpy's with fewer bits make columns of different
            dtypes. As arguments they are the same.
        reasons: gets a sentence for each part that another process cannot know, or whose samples may differ unseen.

    Raises:
        ConfigError: it is nested deeper than any argument is.
    """
    same = (np.bool_, np.int64, np.float64) if of_samples else _SAME_AS_ARGUMENTS
    notes = [] if reasons is None else reasons

    def content(value: Any) -> Any:
        return to_plain(
            value, lambda other: _describe(other, content, notes, to_rebuild=False), first
        )

    def first(value: Any) -> Any:
        if (scalar := _plain_scalar(value, same)) is not None:
            return scalar
        if isinstance(value, range):
            return {
                "range": [value[0] if value else 0, len(value), value.step if len(value) > 1 else 1]
            }
        if isinstance(value, (bytes, bytearray)):
            return {"bytes": hashlib.sha256(value).hexdigest()}
        if isinstance(value, tuple):  # also one with names
            return {"tuple": content(list(value))}
        if (found := _array_of(_write_out(value))) is None:
            return None
        kind, array = found
        little = array.dtype.newbyteorder("<")
        dtype = (
            kind
            if kind not in ("array", "records")
            else str(little.descr)
            if little.kind == "V"
            else little.str
        )
        name = (
            "scalar"
            if isinstance(value, np.generic)
            else "array"
            if kind in ("array", "records")
            else "tensor"
        )
        return {name: [dtype, list(array.shape), array_digest(array)]}

    return content(value)


def _write_out(value: Any) -> Any:
    """Computed positions, up to a limit, as an array; anything else unchanged."""
    if not isinstance(value, ComputedPositions) or len(value) > (1 << 24):
        return value
    positions = as_index_array(value)
    return narrow(positions, int(positions.max(initial=0)) + 1)


def _plain_scalar(value: Any, same: tuple[type[np.generic], ...]) -> Any:
    """A number of numpy's that is the same as one of Python's, as plain data; None of anything else."""
    is_same = (
        isinstance(value, same) and value.dtype.kind != "m"
    )  # numpy calls spans of time integers
    return to_plain(value.item()) if is_same else None


def _describe(
    value: Any, plain: Callable[[Any], Any], why_not: list[str], *, to_rebuild: bool
) -> Any:
    """Describe a function, encoder, meta or other object, for a recipe (``to_rebuild``) or for a fingerprint."""

    def note(reason: str) -> None:
        if reason not in why_not:
            why_not.append(reason)

    if isinstance(value, PartialContent):
        note(value.reason)
        return plain(value.content)
    if _has_methods(value, "state", "fingerprint"):  # an encoder
        try:
            known = value.state() if to_rebuild else value.fingerprint()
            canonical_json(known)
            return {"encoder": known}
        except (DataStackError, TypeError, ValueError) as error:
            note(f"encoder {value!r:.80} cannot be written down: {error}")
            return {
                "unknown": {
                    "class": class_name(value),
                    "content": describe_unnamed(value, content_if_known),
                }
            }
    if isinstance(value, DatasetMetaIF):
        known = MetaFactory.copy_dataset_meta(value)
        names = [
            each.name
            for kind in (DatasetMeta, IteratorMeta)
            for each in fields(kind)
            if each.name != "iterator_meta"
        ]
        # Those that came later count where they are given: fingerprints of other iterators stay.
        values = {
            key: each
            for key in names
            if (each := getattr(known, key)) is not None or not key.startswith("column_")
        }
        numbers = {
            key: each.item() if isinstance(each, np.integer) else each
            for key, each in values.items()
        }
        return {"dataset_meta": {key: plain(each) for key, each in numbers.items()}}
    if _has_methods(value, "get_resource", "set_resource", "has_resource"):
        return {"storage": None}
    if callable(value):
        if (name := write_function(value, plain)) is not None:
            return name
        note(
            f"{shorten(value)} cannot be imported; define it with def in a module, or use @data_stack.named_function"
        )
        content = describe_unnamed(value, content_if_known)
        return {
            "unnamed": {"function": shorten(value), "content": content} if to_rebuild else content
        }
    content, is_complete = _content_of_unknown(value)
    if to_rebuild or not is_complete:
        note(f"an object of {class_name(value)} cannot be written down")
    return {"unknown": {"class": class_name(value), "content": content}}


def array_digest(array: npt.NDArray[Any]) -> str:
    """SHA-256 of an array's values, little-endian, the last index running fastest; read in blocks."""
    digest = hashlib.sha256()
    array = array.reshape(1, -1) if array.ndim == 0 or array.size == 0 else array
    rows = max(1, (1 << 24) * len(array) // max(1, array.nbytes))
    for start in range(0, len(array), rows):
        block = np.ascontiguousarray(
            array[start : start + rows], dtype=array.dtype.newbyteorder("<")
        )
        digest.update(block.reshape(-1).view(np.uint8).data if block.size else b"")
    return digest.hexdigest()


def probe(samples: Any) -> dict[str, Any]:
    """The number of samples, and a digest of a few of them; None where these cannot be read."""
    length, is_steady = None, False
    with contextlib.suppress(Exception):  # a client's class may raise anything
        length = len(samples)
        places = sorted({length * i // _N_PROBED for i in range(_N_PROBED)}) if length else []
        digests = [sample_digest(samples[place]) for place in places]
        is_steady = not places or sample_digest(samples[0]) == digests[0]
    return {
        "n_samples": length,
        "probe": hashlib.sha256(b"".join(digests)).hexdigest() if is_steady else None,
    }


def other_values(value: Any) -> list[Any]:
    """All functions, encoders and other objects in a value, at any depth."""
    found: list[Any] = []

    def skip(other: Any) -> dict[str, Any] | None:
        return (
            {}
            if isinstance(other, (range, DatasetMetaIF)) or _array_of(other) is not None
            else None
        )

    def note(other: Any) -> dict[str, Any]:
        found.append(other)
        return {}

    to_plain(value, note, skip)
    return found


def content_if_known(value: Any) -> Any:
    """:func:`content_of` of plain values and arrays; ConfigError for anything else."""
    kinds = (
        type(None),
        bool,
        int,
        float,
        str,
        bytes,
        bytearray,
        range,
        slice,
        set,
        frozenset,
        np.generic,
        DatasetMetaIF,
    )
    if isinstance(value, kinds) or _array_of(value) is not None:
        return content_of(value)
    raise ConfigError(f"an object of {class_name(value)}")


def _content_of_unknown(value: Any) -> tuple[Any, bool]:
    """What is known of an object, and whether that is all of it."""
    is_ours = type(value).__module__.partition(".")[0] == "data_stack"
    if isinstance(value, np.ma.MaskedArray):
        return [content_of(np.ma.getdata(value)), content_of(np.ma.getmaskarray(value))], True
    if hasattr(value, "__len__") and hasattr(value, "__getitem__") and not hasattr(value, "iloc"):
        found = probe(value)  # an array in a file may be larger than the memory
        return found if found["probe"] is not None else {
            **found,
            "content": describe_unnamed(value, content_if_known),
        }, is_ours
    try:
        return sample_digest(value).hex(), True  # a picture, a date, a decimal number
    except ConfigError:
        return describe_unnamed(value, content_if_known), is_ours


def class_name(value: Any) -> str:
    """The class of a value with its module; the program's is the same in its worker processes."""
    return f"{type(value).__module__}.{type(value).__qualname__}".replace(
        "__mp_main__.", "__main__."
    )


def _array_of(value: Any) -> tuple[str, npt.NDArray[Any]] | None:
    """``("array", values)`` of an array or a series of numbers; of a tensor its dtype in place of "array"; otherwise None."""
    if isinstance(value, (np.ndarray, np.generic)):
        if isinstance(value, np.ma.MaskedArray) or value.dtype.hasobject:
            return None
        return ("records" if value.dtype.kind == "V" else "array"), np.asarray(value)
    if (
        hasattr(value, "iloc")
        and getattr(value, "ndim", 0) == 1
        and isinstance(value.dtype, np.dtype)
    ):
        return ("array", value.to_numpy()) if value.dtype.kind in "biufc" else None
    if not hasattr(value, "detach") or type(value).__module__.partition(".")[0] != "torch":
        return None
    dtype = str(value.dtype).rpartition(".")[2]
    with contextlib.suppress(TypeError, RuntimeError, NotImplementedError):  # sparse, quantized
        # numpy lacks bfloat16 and all smaller floats, which are exact in float32
        return dtype, as_array(value.float() if "float8" in dtype or dtype == "bfloat16" else value)
    return None


def _has_methods(value: Any, *names: str) -> bool:
    return not isinstance(value, type) and all(
        callable(getattr(value, name, None)) for name in names
    )
