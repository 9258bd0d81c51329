"""The transformers of scikit-learn that are kept as plain data: their parameters and a few arrays of numbers.

scikit-learn trusts a fitted transformer, and others than these write to memory where a forged one says. Of these, what was
learned is arrays of numbers whose shapes go together, and nothing else is made of a state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from data_stack.codecs.plain_data import from_plain, shown, to_plain
from data_stack.exception import ConfigError, MissingDependencyError

try:
    from sklearn import decomposition, pipeline, preprocessing
except ModuleNotFoundError as error:
    raise MissingDependencyError("an encoder of scikit-learn", "scikit-learn", "sklearn") from error

__all__ = ["plain_transformer", "transformer_from_plain"]

_N_FEATURES, _MOST_FEATURES, _N_SEEN = "n_features_in_", 1 << 22, "n_samples_seen_"
_FEATURES, _COMPONENTS = ("features",), ("components",)
_DECOMPOSED: Final = {
    "components_": ("components", "features"),
    "explained_variance_": _COMPONENTS,
    "explained_variance_ratio_": _COMPONENTS,
    "singular_values_": _COMPONENTS,
}
#: What each has learned, with the names of its sizes.
_LEARNED: Final[Mapping[type[Any], Mapping[str, tuple[str, ...]]]] = {
    preprocessing.StandardScaler: dict.fromkeys(("mean_", "var_", "scale_", _N_SEEN), _FEATURES),
    preprocessing.MinMaxScaler: dict.fromkeys(("scale_", "min_", "data_min_", "data_max_", "data_range_", _N_SEEN), _FEATURES),
    preprocessing.MaxAbsScaler: dict.fromkeys(("max_abs_", "scale_", _N_SEEN), _FEATURES),
    preprocessing.RobustScaler: dict.fromkeys(("center_", "scale_"), _FEATURES),
    preprocessing.QuantileTransformer: {"references_": ("quantiles",), "quantiles_": ("quantiles", "features")},
    preprocessing.Normalizer: {},
    preprocessing.Binarizer: {},
    decomposition.PCA: {**_DECOMPOSED, "mean_": _FEATURES},
    decomposition.TruncatedSVD: _DECOMPOSED,
}
_CLASSES: Final[Mapping[str, type[Any]]] = {known.__name__: known for known in (*_LEARNED, pipeline.Pipeline)}
#: Attributes that are None where a parameter says that there is no such thing.
_OPTIONAL: Final = frozenset(("mean_", "var_", "scale_", "center_"))


def plain_transformer(transformer: Any) -> dict[str, Any]:
    """What makes ``transformer`` again.

    Raises:
        ConfigError: it is none of those that can be kept, or one of its parameters is no plain value.
    """
    name = type(transformer).__name__
    if _CLASSES.get(name) is not type(transformer):
        raise ConfigError(
            f"{type(transformer).__module__}.{name} can be used, but not be written as plain data: of scikit-learn's "
            f"transformers {', '.join(_CLASSES)} can. It can still be pickled"
        )
    if name == "Pipeline":
        steps = [[step, each if isinstance(each, str) else plain_transformer(each)] for step, each in transformer.steps]
        return {"class": name, "steps": steps}
    parameters = transformer.get_params(deep=False)
    learned = {key: vars(transformer)[key] for key in (_N_FEATURES, *_LEARNED[type(transformer)]) if key in vars(transformer)}
    _check(transformer, parameters, learned)
    return {"class": name, "parameters": to_plain(parameters), "learned": to_plain(learned)}


def transformer_from_plain(data: Any) -> Any:
    """The transformer that :func:`plain_transformer` was given.

    Raises:
        ConfigError: ``data`` is not of that form, or holds what fitting could not have given.
    """
    if not isinstance(data, dict) or not isinstance(data.get("class"), str) or data["class"] not in _CLASSES:
        raise ConfigError(f"no transformer of scikit-learn that is kept as plain data: {data!r:.80}")
    known = _CLASSES[data["class"]]
    if data.keys() == {"class", "steps"} and known is pipeline.Pipeline and isinstance(data["steps"], list):
        steps = [(str(name), each if each == "passthrough" else transformer_from_plain(each)) for name, each in data["steps"]]
        return pipeline.Pipeline(steps)
    if data.keys() != {"class", "parameters", "learned"} or known is pipeline.Pipeline:
        raise ConfigError(f"no state of a {data['class']}: it is of another version of data_stack, or damaged")
    parameters, learned = from_plain(data["parameters"]), from_plain(data["learned"])
    if not isinstance(parameters, dict) or not isinstance(learned, dict):
        raise ConfigError(f"damaged state of a {data['class']}: its parameters and what it learned must be dicts")
    try:
        transformer = known(**parameters)
    except TypeError as error:
        raise ConfigError(f"{data['class']} cannot be made of these parameters: {error}") from error
    _check(transformer, parameters, learned)
    vars(transformer).update(learned)
    return transformer


def _check(transformer: Any, parameters: dict[str, Any], learned: dict[str, Any]) -> None:
    """Refuse what is no parameter of the class, and what fitting could not have given.

    Raises:
        ConfigError: the message names it.
    """
    name = type(transformer).__name__
    for key, value in parameters.items():
        values = value if isinstance(value, tuple) else (value,)
        if not all(each is None or isinstance(each, (bool, int, float, str)) for each in values):
            raise ConfigError(f"{name} cannot be written as plain data, because of its parameter {key}={shown(value)}")
    try:
        transformer._validate_params()
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{name} cannot have these parameters: {error!s:.300}") from error
    expected = _LEARNED[type(transformer)]
    if learned and learned.keys() - {_N_FEATURES} != expected.keys():
        raise ConfigError(f"{name} has learned {', '.join(expected)}, and not {', '.join(map(str, learned))}")
    n_features = learned.get(_N_FEATURES, 0)
    if not isinstance(n_features, int) or not 0 <= n_features <= _MOST_FEATURES:  # scikit-learn makes a name of each
        raise ConfigError(f"{name} with {_N_FEATURES}={shown(n_features)} is not what fitting gives")
    sizes = {"features": n_features} if _N_FEATURES in learned else {}
    for key, axes in expected.items() if learned else ():
        value = learned[key]
        if (value is None and key in _OPTIONAL) or (key == _N_SEEN and isinstance(value, (int, np.number))):
            continue
        is_right = isinstance(value, np.ndarray) and value.dtype.kind in "biuf" and value.ndim == len(axes)
        if not is_right or any(sizes.setdefault(axis, size) != size for axis, size in zip(axes, value.shape, strict=True)):
            raise ConfigError(f"{name} with {key}={shown(value)} is not what fitting gives: another type or shape")
