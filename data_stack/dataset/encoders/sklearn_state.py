"""Transformers of scikit-learn as plain data and back; nothing but these is made of it."""

from __future__ import annotations

import importlib
import re
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.encoders.encoder import short_range
from data_stack.dataset.recipes.plain_data import from_plain, shown, to_plain
from data_stack.exception import ConfigError, MissingDependencyError

try:
    import sklearn
except ModuleNotFoundError as error:
    raise MissingDependencyError("an encoder of scikit-learn", "scikit-learn", "sklearn") from error

__all__ = ["plain_transformer", "transformer_from_plain"]

_PATH = re.compile(r"sklearn((?:\.[a-z][a-z0-9_]*){1,2})\.([A-Z][A-Za-z0-9]*)", re.ASCII)
_ATTRIBUTE = re.compile(r"(?!.*__)[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_NO_LIBRARY = {"externals", "experimental", "tests", "datasets", "callback", "conftest"}
#: Numbers of features, components and the like, of which scikit-learn makes a name each.
_COUNT = re.compile(r"_?n_(?!.*(samples|iter))", re.ASCII)
_MOST_FEATURES = 1 << 22
#: What makes a transformer read files: named by the data, or by a state that anyone may have written.
_ALLOWED = {"memory": (None,), "input": ("content", "dict", "pair", "string")}


def plain_transformer(transformer: Any) -> dict[str, Any]:
    """Class and attributes of a transformer of scikit-learn.

    Raises:
        ConfigError: it is none, or one of its attributes is no plain data; the message names it.
    """
    path = _public_path(type(transformer))
    attributes = {}
    for name, value in vars(transformer).items():
        _check_attribute(path, name, value)
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
        ConfigError: ``data`` is not of that form, or names something else than a public transformer of scikit-learn.
    """
    if not isinstance(data, dict) or data.keys() != {"class", "attributes"} or not isinstance(data["attributes"], dict):
        raise ConfigError(f"no transformer of scikit-learn: {data!r:.80}")
    transformer_class = _class_at(data["class"])
    transformer = transformer_class.__new__(transformer_class)
    special = {
        "sklearn": transformer_from_plain,
        "scalar_type": _scalar_type,
        "dtype": _dtype,
        "transposed": _transposed,
        "range": short_range,
    }
    for name, value in data["attributes"].items():
        if not isinstance(name, str) or not _ATTRIBUTE.fullmatch(name) or callable(getattr(transformer_class, name, None)):
            raise ConfigError(f"{data['class']} has no attribute {name!r:.80}")
        attribute = from_plain(value, special)
        _check_attribute(data["class"], name, attribute)
        transformer.__dict__[name] = attribute
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


def _check_attribute(path: Any, name: str, value: Any) -> None:
    if name in _ALLOWED and not (value is None or (isinstance(value, str) and value in _ALLOWED[name])):
        raise ConfigError(f"{path} with {name}={value!r:.80} is no plain data: it reads or writes files")
    if _COUNT.match(name) and isinstance(value, (int, np.integer)) and value > _MOST_FEATURES:
        raise ConfigError(f"{path} with {name}={shown(value)} is no plain data: it makes a list of so many names")


def _public_path(transformer_class: type[Any]) -> str:
    parts = [part for part in transformer_class.__module__.split(".") if not part.startswith("_")]
    for n_parts in range(2, len(parts) + 1):
        path = ".".join([*parts[:n_parts], transformer_class.__name__])
        try:
            if _class_at(path) is transformer_class:
                return path
        except ConfigError:
            continue
    raise ConfigError(
        f"{transformer_class.__module__}.{transformer_class.__qualname__} cannot be written as plain data: "
        f"it is no public transformer of scikit-learn"
    )


def _class_at(path: Any) -> Any:
    """The class of a public transformer.

    Raises:
        ConfigError: ``path`` leads elsewhere; nothing outside of scikit-learn is imported.
    """
    match = _PATH.fullmatch(path) if isinstance(path, str) else None
    if match is None:
        raise ConfigError(f"no transformer of scikit-learn: {path!r:.80}")
    modules, name = match[1][1:].split("."), match[2]
    if modules[0] not in getattr(sklearn, "__all__", ()) or _NO_LIBRARY & set(modules):
        raise ConfigError(f"no transformer of scikit-learn: {path!r:.80}")
    try:
        module = importlib.import_module(".".join(["sklearn", *modules]))
    except ImportError:
        raise ConfigError(f"scikit-learn {sklearn.__version__} has no {path!r:.80}") from None
    found: Any = vars(module).get(name)
    if (
        not isinstance(found, type)
        or not (name in module.__all__ if hasattr(module, "__all__") else found.__module__ == module.__name__)
        or not found.__module__.startswith("sklearn.")
        or not all(callable(getattr(found, method, None)) for method in ("fit", "transform"))
    ):
        raise ConfigError(f"scikit-learn {sklearn.__version__} has no transformer {path!r:.80}")
    return found
