"""Transformers of scikit-learn as plain data and back; nothing but these is made of it."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.codecs.plain_data import from_plain, to_plain
from data_stack.dataset.encoders.encoder import short_range
from data_stack.dataset.encoders.sklearn_rules import TRANSFORMERS, check_transformer
from data_stack.exception import ConfigError

__all__ = ["plain_transformer", "transformer_from_plain"]

#: Of a process, not of the transformer: where its stop words lie in memory.
_LEFT_OUT = frozenset(("_stop_words_id",))


def plain_transformer(transformer: Any) -> dict[str, Any]:
    """Class and attributes of a transformer of scikit-learn.

    Raises:
        ConfigError: it is none of those that can be, or one of its attributes is no plain data; the message names it.
    """
    path = next((path for path, known in TRANSFORMERS.items() if known is type(transformer)), None)
    if path is None:
        raise ConfigError(
            f"{type(transformer).__module__}.{type(transformer).__qualname__} cannot be written as plain data: "
            f"it is none of {', '.join(known.__name__ for known in TRANSFORMERS.values())}. It can still be pickled"
        )
    transformer = copy.copy(transformer)
    for name in _LEFT_OUT & vars(transformer).keys():
        delattr(transformer, name)
    try:
        check_transformer(transformer)
    except ConfigError as error:
        raise ConfigError(f"{path} cannot be written as plain data: {error}. It can still be pickled") from error
    attributes = {}
    for name, value in vars(transformer).items():
        try:
            attributes[name] = _plain_attribute(value)
        except ConfigError as error:
            raise ConfigError(
                f"{path} cannot be written as plain data, because of its attribute {name}: {error}. It can still be pickled"
            ) from error
    return {"class": path, "attributes": attributes}


def transformer_from_plain(data: Any) -> Any:
    """The transformer that :func:`plain_transformer` was given.

    Raises:
        ConfigError: ``data`` is not of that form, names something else than a transformer of :data:`TRANSFORMERS`, or holds what
            fitting it could not have given.
    """
    if not isinstance(data, dict) or data.keys() != {"class", "attributes"} or not isinstance(data["attributes"], dict):
        raise ConfigError(f"no transformer of scikit-learn: {data!r:.80}")
    transformer_class = TRANSFORMERS.get(data["class"]) if isinstance(data["class"], str) else None
    if transformer_class is None:
        raise ConfigError(f"no transformer of scikit-learn that is kept as plain data: {data['class']!r:.80}")
    attributes: dict[str, Any] = {}
    special = {
        "sklearn": transformer_from_plain,
        "scalar_type": _scalar_type,
        "dtype": _dtype,
        "transposed": _transposed,
        "range": short_range,
    }
    for name, value in data["attributes"].items():
        attribute = from_plain(value, special)
        if name in _LEFT_OUT:  # of states that were stored before
            continue
        if not isinstance(name, str) or "__" in name or callable(getattr(transformer_class, name, None)):
            raise ConfigError(f"{data['class']} has no attribute {name!r:.80}")
        attributes[name] = attribute
    parameters = set(transformer_class._get_param_names())
    try:
        transformer = transformer_class(**{name: attributes[name] for name in attributes.keys() & parameters})
    except TypeError as error:
        raise ConfigError(f"{data['class']} cannot be made without all of its parameters: {error}") from error
    transformer.__dict__.update({name: value for name, value in attributes.items() if name not in parameters})
    check_transformer(transformer)
    return transformer


def _plain_attribute(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.ndim == 2 and abs(value.strides[0]) < abs(value.strides[1]):
        # Columns lie together: so they are kept, for the last bits of a matrix product depend on it.
        return {"transposed": to_plain(value.T, _special)}
    return to_plain(value, _special)


def _special(value: Any) -> dict[str, Any] | None:
    if isinstance(value, type) and issubclass(value, np.generic):
        return {"scalar_type": np.dtype(value).name}
    if isinstance(value, np.dtype):
        return {"dtype": value.name if value.kind == "O" else value.str}
    if type(value).__module__.split(".")[0] == "sklearn":
        return {"sklearn": plain_transformer(value)}
    return None


def _transposed(content: Any) -> npt.NDArray[Any]:
    array = from_plain(content)
    if not isinstance(array, np.ndarray):
        raise ConfigError(f"no array to be transposed: {content!r:.80}")
    transposed: npt.NDArray[Any] = array.T
    return transposed


def _scalar_type(name: Any) -> type[Any]:
    dtype = np.dtype(str(name))
    if dtype.kind not in "biufcSU" or dtype.name != name:
        raise ConfigError(f"no type of numpy: {name!r:.80}")
    return dtype.type


def _dtype(name: Any) -> np.dtype[Any]:
    """A dtype by its name; of objects too, for it alone holds none."""
    dtype = np.dtype(str(name))
    if dtype.kind not in "biufcSUO" or name not in (dtype.str, "object"):
        raise ConfigError(f"no dtype of numpy: {name!r:.80}")
    return dtype
