"""Arguments of layers as plain data that are equal for equal arguments: for fingerprints."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from data_stack.codecs.plain_data import canonical_json, to_plain
from data_stack.dataset.meta import DatasetMeta, DatasetMetaIF, IteratorMeta, MetaFactory
from data_stack.dataset.recipes.array_values import (
    array_digest,
    array_value_of,
    write_out_positions,
)
from data_stack.dataset.recipes.function_names import shorten, write_function
from data_stack.dataset.recipes.identity import array_class, dtype_identity, identity_of
from data_stack.dataset.recipes.library_identity import portable_class_name
from data_stack.dataset.recipes.unnamed_values import describe_unnamed
from data_stack.exception import ConfigError, DataStackError
from data_stack.values.digests import sample_digest

#: How many samples of a source of an unknown class are looked at.
_N_PROBED = 8

#: Numbers of numpy that mean the same as Python's numbers if they are arguments.
_SAME_AS_PYTHON: tuple[type[np.generic], ...] = (np.bool_, np.integer, np.float64)

#: Containers that plain data have a form for.
_PLAIN_CONTAINERS: frozenset[type] = frozenset({list, dict, set, slice})

#: Classes of values that a class of the program may derive from.
_BUILT_IN_BASES = (list, tuple, set, frozenset, Mapping, bytes, bytearray, str, int, float)

#: Types that :func:`content_of` describes completely, beside arrays and metas.
_KNOWN_TYPES: frozenset[type] = frozenset(
    {type(None), bool, int, float, str, bytes, bytearray, range, slice, set, frozenset}
)

#: The methods by which an encoder and a storage connector are recognized, without importing their
#: classes.
_ENCODER_METHODS = ("state", "fingerprint")
_STORAGE_METHODS = ("get_resource", "set_resource", "has_resource")


@dataclass(frozen=True)
class PartialContent:
    """Content that is not complete.

    It may be equal for different samples, or be valid in this process only.

    Attributes:
        content: plain data, as far as it is known.
        reason: what is unknown.
    """

    content: Any
    reason: str


# ------------------------------------------------------------------------------ values of any kind


def content_of(value: Any, *, of_samples: bool = False, reasons: list[str] | None = None) -> Any:
    """Return plain data that is equal for equal values.

    Arrays and bytes stand in it by their SHA-256.

    Args:
        value: anything.
        of_samples: whether the value holds samples, or values that a function uses. These may
            tell an int from an integer of numpy's; arguments of layers do not.
        reasons: receives a sentence for each part that another process cannot know, or whose
            samples may differ unseen.

    Raises:
        ConfigError: the value is nested deeper than any argument is.
    """
    notes = [] if reasons is None else reasons
    return _ContentDescriber(notes, of_samples=of_samples).describe(value)


def content_if_known(value: Any) -> Any:
    """Return :func:`content_of` of a plain value, an array or a value of a known class.

    Raises:
        ConfigError: the value is of another class.
    """
    is_array = isinstance(value, np.generic) or array_value_of(value) is not None
    is_plain = type(value) in _KNOWN_TYPES
    if is_plain or is_array or isinstance(value, DatasetMetaIF):
        return content_of(value, of_samples=True)
    identity = identity_of(value, content_of_part)
    if identity is None:
        raise ConfigError(f"an object of {class_name(value)}")
    return identity


def content_of_part(value: Any) -> Any:
    """Return :func:`content_of` of a part of a value of a known class.

    Raises:
        ConfigError: the content of the part is not known completely.
    """
    reasons: list[str] = []
    content = content_of(value, of_samples=True, reasons=reasons)
    if reasons:
        raise ConfigError(reasons[0])
    return content


def plain_scalar(value: Any, *, of_samples: bool) -> Any:
    """Return a number of numpy's as plain data, if it means the same as one of Python's.

    Returns:
        Plain data; None for other values, and for all numbers in samples, which keep their dtype.
    """
    if of_samples or not isinstance(value, _SAME_AS_PYTHON):
        return None
    is_span_of_time = value.dtype.kind == "m"  # which numpy calls an integer
    if is_span_of_time:
        return None
    return to_plain(value.item())


class _ContentDescriber:
    """Describes values for :func:`content_of`.

    Args:
        reasons: receives a sentence for each part that is not known completely.
        of_samples: as in :func:`content_of`.
    """

    def __init__(self, reasons: list[str], *, of_samples: bool) -> None:
        self._reasons = reasons
        self._of_samples = of_samples

    def describe(self, value: Any) -> Any:
        """Describe a value of any kind."""
        return to_plain(value, self._describe_object, self._describe_known)

    def _describe_known(self, value: Any) -> Any:
        """Describe a value of a known kind.

        Returns:
            Plain data; None if :func:`to_plain` itself, or :meth:`_describe_object`, describes it.
        """
        value_type = type(value)
        if value_type is tuple:
            return {"tuple": self.describe(list(value))}
        if value_type is bytes:
            return {"bytes": hashlib.sha256(value).hexdigest()}
        if value_type in _PLAIN_CONTAINERS:
            return None
        scalar = plain_scalar(value, of_samples=self._of_samples)
        if scalar is not None:
            return scalar
        identity = identity_of(value, self.describe)
        if identity is not None:
            return identity
        if isinstance(value, range):
            return {"range": _range_content(value)}
        is_of_derived_class = isinstance(value, _BUILT_IN_BASES)
        if is_of_derived_class and not isinstance(value, np.generic):
            return self._describe_object(value)
        if isinstance(value, (np.ndarray, np.generic)) and _holds_objects(value):
            return self._describe_array_of_objects(value)
        return _array_content(value)

    def _describe_array_of_objects(self, array: Any) -> Any:
        """Describe an array of objects, or of text of any length, by its values."""
        if isinstance(array, np.ma.MaskedArray):
            return self._describe_object(array)
        shape = list(array.shape)
        if array.dtype.names is not None:
            return {"records": [str(array.dtype), shape, self.describe(array.tolist())]}
        values = [self.describe(item) for item in array.ravel().tolist()]
        content = {"shape": shape, "values": values}
        if array.dtype.kind != "O" or array_class(array) is not None:
            content["of"] = [repr(array.dtype), array_class(array)]
        return {"objects": content}

    def _describe_object(self, value: Any) -> Any:
        return describe_object(value, self._describe_exactly, self._reasons, to_rebuild=False)

    def _describe_exactly(self, part: Any) -> Any:
        return content_of(part, of_samples=True, reasons=self._reasons)


def _range_content(positions: range) -> list[int]:
    """Return the start, length and step of a range, which are the same for equal ranges."""
    start = positions[0] if positions else 0
    step = positions.step if len(positions) > 1 else 1
    return [start, len(positions), step]


def _holds_objects(array: Any) -> bool:
    is_text_of_any_length = array.dtype.kind == "T"
    return bool(array.dtype.hasobject) or is_text_of_any_length


def _array_content(value: Any) -> dict[str, Any] | None:
    """Describe an array, scalar or tensor by its dtype, shape and digest; None of other values."""
    array = array_value_of(write_out_positions(value))
    if array is None:
        return None
    dtype = array.tensor_dtype or dtype_identity(array.values.dtype)
    facts: list[Any] = [dtype, list(array.values.shape), array_digest(array.values)]
    if array.kind == "tensor":
        return {"tensor": facts + _facts_of_tensor(value)}
    if isinstance(value, np.generic):
        return {"scalar": facts}
    if isinstance(value, np.ndarray) and array_class(value) is not None:
        facts.append(array_class(value))
    return {"array": facts}


def _facts_of_tensor(value: Any) -> list[Any]:
    """Return the class of a tensor and whether it wants a gradient; nothing for a plain tensor."""
    tensor_class = class_name(value)
    if tensor_class == "torch.Tensor" and not value.requires_grad:
        return []
    return [tensor_class, bool(value.requires_grad)]


# --------------------------------------------------------------- functions, encoders, other objects


def describe_object(
    value: Any, plain: Callable[[Any], Any], reasons: list[str], *, to_rebuild: bool
) -> Any:
    """Describe a function, an encoder, a meta or another object.

    Args:
        value: the object.
        plain: describes the parts of the object.
        reasons: receives a sentence for each part that cannot be made again (``to_rebuild``), or
            that is not known completely.
        to_rebuild: whether the description is for a recipe; otherwise it is for a fingerprint.
    """
    if isinstance(value, PartialContent):
        _note(reasons, value.reason)
        return plain(value.content)
    if _has_methods(value, _ENCODER_METHODS):
        return _describe_encoder(value, reasons, to_rebuild=to_rebuild)
    if isinstance(value, DatasetMetaIF):
        return {"dataset_meta": _describe_meta(value, plain)}
    if _has_methods(value, _STORAGE_METHODS):
        # Another store does not change the samples.
        return {"storage": None}
    if callable(value):
        return _describe_function(value, plain, reasons, to_rebuild=to_rebuild)

    content, is_complete = _content_of_unknown(value)
    if to_rebuild or not is_complete:
        _note(reasons, f"an object of {class_name(value)} cannot be written down")
    return {"unknown": {"class": class_name(value), "content": content}}


def _note(reasons: list[str], reason: str) -> None:
    """Add a reason, once."""
    if reason not in reasons:
        reasons.append(reason)


def _describe_encoder(encoder: Any, reasons: list[str], *, to_rebuild: bool) -> dict[str, Any]:
    try:
        content = encoder.state() if to_rebuild else encoder.fingerprint()
        canonical_json(content)
    except (DataStackError, TypeError, ValueError) as error:
        _note(reasons, f"encoder {encoder!r:.80} cannot be written down: {error}")
        content = describe_unnamed(encoder, content_if_known)
        return {"unknown": {"class": class_name(encoder), "content": content}}
    return {"encoder": content}


def _describe_meta(meta: DatasetMetaIF, plain: Callable[[Any], Any]) -> dict[str, Any]:
    known_meta = MetaFactory.copy_dataset_meta(meta)
    described = {}
    for name in _names_in_metas():
        value = getattr(known_meta, name)
        if isinstance(value, np.integer):
            value = value.item()
        # Fingerprints were stored before metas had these, so they count only if they are given.
        is_newer_than_fingerprints = name.startswith("column_")
        if value is not None or not is_newer_than_fingerprints:
            described[name] = plain(value)
    return described


def _names_in_metas() -> list[str]:
    """Return the names of the attributes of a DatasetMeta and of its IteratorMeta."""
    names = [field.name for field in fields(DatasetMeta) if field.name != "iterator_meta"]
    names.extend(field.name for field in fields(IteratorMeta))
    return names


def _describe_function(
    function: Any, plain: Callable[[Any], Any], reasons: list[str], *, to_rebuild: bool
) -> dict[str, Any]:
    """Describe a function by its name; one that cannot be imported by a digest of its code."""
    named = write_function(function, plain)
    if named is not None:
        return named
    _note(
        reasons,
        f"{shorten(function)} cannot be imported; "
        "define it with def in a module, or use @data_stack.named_function",
    )
    digest = describe_unnamed(function, content_if_known)
    if to_rebuild:
        return {"unnamed": {"function": shorten(function), "content": digest}}
    return {"unnamed": digest}


def _content_of_unknown(value: Any) -> tuple[Any, bool]:
    """Return what is known of an object, and whether that is all of it."""
    if isinstance(value, np.ma.MaskedArray):
        return _content_of_masked_array(value), True

    is_ours = type(value).__module__.partition(".")[0] == "data_stack"
    if not _is_indexable_source(value):
        return describe_unnamed(value, content_if_known), is_ours
    # It may be an array in a file that is larger than the memory.
    content = probe(value)
    if content["probe"] is None:
        content["content"] = describe_unnamed(value, content_if_known)
    return content, is_ours


def _content_of_masked_array(array: Any) -> list[Any]:
    content = [content_of(np.ma.getdata(array)), content_of(np.ma.getmaskarray(array))]
    has_chosen_fill_value = getattr(array, "_fill_value", None) is not None
    if has_chosen_fill_value:
        content.append(content_of(array.fill_value, of_samples=True))
    return content


def _is_indexable_source(value: Any) -> bool:
    """Return whether a value may be read by position, and is neither a container nor a table."""
    if isinstance(value, _BUILT_IN_BASES) or hasattr(value, "iloc"):
        return False
    return hasattr(value, "__len__") and hasattr(value, "__getitem__")


def probe(samples: Any) -> dict[str, Any]:
    """Find out the number of samples of a source, and a digest of a few of them.

    Returns:
        ``n_samples``, and ``probe``, 64 hex digits. Each is None if it cannot be read. ``probe`` is
        None, too, if the first sample is another one when it is read again.
    """
    n_samples = None
    digest = None
    with contextlib.suppress(Exception):  # a client's class may raise anything
        n_samples = len(samples)
        digest = _digest_some_samples(samples, n_samples)
    return {"n_samples": n_samples, "probe": digest}


def _digest_some_samples(samples: Any, n_samples: int) -> str | None:
    """Return a SHA-256 of samples at equal distances; None if reading one again changes it."""
    positions: list[int] = []
    if n_samples:
        positions = sorted({n_samples * number // _N_PROBED for number in range(_N_PROBED)})
    digests = [sample_digest(samples[position]) for position in positions]
    if positions and sample_digest(samples[0]) != digests[0]:
        return None
    return hashlib.sha256(b"".join(digests)).hexdigest()


def other_values(value: Any) -> list[Any]:
    """Return all functions, encoders and other objects in a value, at any depth."""
    others: list[Any] = []

    def skip_known(part: Any) -> dict[str, Any] | None:
        is_known = isinstance(part, (range, DatasetMetaIF)) or array_value_of(part) is not None
        return {} if is_known else None

    def collect(part: Any) -> dict[str, Any]:
        others.append(part)
        return {}

    to_plain(value, collect, skip_known)
    return others


def class_name(value: Any) -> str:
    """Return the class of a value with its module, the same in all processes of a program."""
    return portable_class_name(type(value))


def _has_methods(value: Any, names: tuple[str, ...]) -> bool:
    if isinstance(value, type):
        return False
    return all(callable(getattr(value, name, None)) for name in names)
