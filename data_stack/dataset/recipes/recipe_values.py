"""Arguments of layers as plain data: exactly for a recipe, by digests for a fingerprint."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.codecs.plain_data import canonical_json, to_plain
from data_stack.dataset.meta import DatasetMeta, DatasetMetaIF, IteratorMeta, MetaFactory
from data_stack.dataset.positions import ComputedPositions, as_index_array, narrow
from data_stack.dataset.recipes.functions import describe_unnamed, shorten, write_function
from data_stack.dataset.recipes.identity import (
    array_class,
    dtype_identity,
    identity_of,
)
from data_stack.exception import ConfigError, DataStackError
from data_stack.values.digests import sample_digest
from data_stack.values.stacked_values import as_array

_N_PROBED = 8

_SAME_AS_ARGUMENTS: tuple[type[np.generic], ...] = (np.bool_, np.integer, np.float64)

#: What plain data have a form for.
_PLAIN_CONTAINERS: frozenset[type] = frozenset({list, dict, set, slice})
_CONTAINERS = (list, tuple, set, frozenset, Mapping, bytes, bytearray, str, int, float)


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
        of_samples: whether these are samples, or values that a function uses, which may tell an int from an integer of numpy's.
            As arguments of layers they are the same.
        reasons: gets a sentence for each part that another process cannot know, or whose samples may differ unseen.

    Raises:
        ConfigError: it is nested deeper than any argument is.
    """
    same = () if of_samples else _SAME_AS_ARGUMENTS
    notes = [] if reasons is None else reasons

    def content(value: Any) -> Any:
        return to_plain(value, special, first)

    def exact_content(value: Any) -> Any:
        return content_of(value, of_samples=True, reasons=notes)

    def special(value: Any) -> Any:
        return _describe(value, exact_content, notes, to_rebuild=False)

    def first(value: Any) -> Any:
        value_type = type(value)
        if value_type is tuple:
            return {"tuple": content(list(value))}
        if value_type is bytes:
            return {"bytes": hashlib.sha256(value).hexdigest()}
        if value_type in _PLAIN_CONTAINERS:
            return None
        if (scalar := _plain_scalar(value, same)) is not None:
            return scalar
        if (known := identity_of(value, content)) is not None:
            return known
        if isinstance(value, range):
            return {
                "range": [value[0] if value else 0, len(value), value.step if len(value) > 1 else 1]
            }
        if isinstance(value, _CONTAINERS) and not isinstance(value, np.generic):
            return special(value)  # of a class of the program
        if isinstance(value, (np.ndarray, np.generic)) and _holds_objects(value):
            return _content_of_objects(value, content, special)
        if (found := _array_of(_write_out(value))) is None:
            return None
        kind, array = found
        is_tensor = kind not in ("array", "records")
        dtype = kind if is_tensor else dtype_identity(array.dtype)
        facts: list[Any] = [dtype, list(array.shape), array_digest(array)]
        if is_tensor:
            return {"tensor": facts + _facts_of_tensor(value)}
        if isinstance(value, np.generic):
            return {"scalar": facts}
        if isinstance(value, np.ndarray) and array_class(value) is not None:
            facts.append(array_class(value))
        return {"array": facts}

    return content(value)


def _holds_objects(array: Any) -> bool:
    return bool(array.dtype.hasobject) or array.dtype.kind == "T"


def _content_of_objects(
    array: Any, content: Callable[[Any], Any], special: Callable[[Any], Any]
) -> Any:
    """An array of objects, or of text of any length, by its values."""
    if isinstance(array, np.ma.MaskedArray):
        return special(array)
    if array.dtype.names is not None:
        return {"records": [str(array.dtype), list(array.shape), content(array.tolist())]}
    values = [content(item) for item in array.ravel().tolist()]
    if array.dtype.kind == "O" and array_class(array) is None:
        return {"objects": {"shape": list(array.shape), "values": values}}
    about = [repr(array.dtype), array_class(array)]
    return {"objects": {"shape": list(array.shape), "values": values, "of": about}}


def _facts_of_tensor(value: Any) -> list[Any]:
    """What a tensor has besides its numbers: another class, such as a parameter's, and whether it wants a gradient."""
    kind = class_name(value)
    if kind == "torch.Tensor" and not value.requires_grad:
        return []
    return [kind, bool(value.requires_grad)]


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
    )
    is_array = isinstance(value, np.generic) or _array_of(value) is not None
    if type(value) in kinds or is_array or isinstance(value, DatasetMetaIF):
        return content_of(value, of_samples=True)
    if (known := identity_of(value, content_of_part)) is not None:
        return known
    raise ConfigError(f"an object of {class_name(value)}")


def content_of_part(value: Any) -> Any:
    """:func:`content_of` of a part of a value of a known kind; ConfigError where the part is of another kind."""
    reasons: list[str] = []
    content = content_of(value, of_samples=True, reasons=reasons)
    if reasons:
        raise ConfigError(reasons[0])
    return content


def _content_of_unknown(value: Any) -> tuple[Any, bool]:
    """What is known of an object, and whether that is all of it."""
    is_ours = type(value).__module__.partition(".")[0] == "data_stack"
    if isinstance(value, np.ma.MaskedArray):
        content = [content_of(np.ma.getdata(value)), content_of(np.ma.getmaskarray(value))]
        if getattr(value, "_fill_value", None) is not None:  # one that was chosen
            content.append(content_of(value.fill_value, of_samples=True))
        return content, True
    is_indexable = hasattr(value, "__len__") and hasattr(value, "__getitem__")
    if is_indexable and not isinstance(value, _CONTAINERS) and not hasattr(value, "iloc"):
        found = probe(value)  # an array in a file may be larger than the memory
        return found if found["probe"] is not None else {
            **found,
            "content": describe_unnamed(value, content_if_known),
        }, is_ours
    return describe_unnamed(value, content_if_known), is_ours


def class_name(value: Any) -> str:
    """The class of a value with its module; the program's is the same in its worker processes."""
    return f"{type(value).__module__}.{type(value).__qualname__}".replace(
        "__mp_main__.", "__main__."
    )


def _array_of(value: Any) -> tuple[str, npt.NDArray[Any]] | None:
    """``("array", values)`` of an array; of a tensor its dtype in place of "array"; otherwise None."""
    if isinstance(value, (np.ndarray, np.generic)):
        if isinstance(value, np.ma.MaskedArray) or value.dtype.hasobject:
            return None
        return ("records" if value.dtype.kind == "V" else "array"), np.asarray(value)
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
