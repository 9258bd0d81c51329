"""Which transformers of scikit-learn can be made of a state, and what must be true of everything in one.

scikit-learn and scipy trust a fitted transformer: a column number out of range in ``vocabulary_`` or ``_n_features_outs`` is
written to that place in memory. So a state from anyone is checked against the shapes that fitting itself would have given, and
what no rule speaks of is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from data_stack.codecs.plain_data import shown
from data_stack.exception import ConfigError, MissingDependencyError

try:
    from sklearn import decomposition, feature_extraction, impute, pipeline, preprocessing
    from sklearn.feature_extraction import text
except ModuleNotFoundError as error:
    raise MissingDependencyError("an encoder of scikit-learn", "scikit-learn", "sklearn") from error

__all__ = ["TRANSFORMERS", "check_transformer"]

#: By the path that users import them from.
TRANSFORMERS: Final[Mapping[str, type[Any]]] = {
    f"{module.__name__}.{name}": getattr(module, name)
    for module, names in (
        (preprocessing, "StandardScaler MinMaxScaler MaxAbsScaler RobustScaler Normalizer Binarizer PowerTransformer"),
        (preprocessing, "QuantileTransformer KBinsDiscretizer PolynomialFeatures OneHotEncoder OrdinalEncoder LabelEncoder"),
        (preprocessing, "LabelBinarizer"),
        (impute, "SimpleImputer"),
        (decomposition, "PCA IncrementalPCA TruncatedSVD"),
        (feature_extraction, "DictVectorizer"),
        (text, "CountVectorizer TfidfTransformer TfidfVectorizer HashingVectorizer"),
        (pipeline, "Pipeline FeatureUnion"),
    )
    for name in names.split()
}

#: scikit-learn makes a name of each.
_MOST_FEATURES = 1 << 22
_MOST_DEGREES, _LONGEST_NGRAM = 64, 100
#: Expressions that take time in proportion to a text, whatever it is: behind what is repeated there is nothing to fail at.
_LINEAR_PATTERN = re.compile(r"(?:\(\?u\))?(?:(?:\\b)?(?:\\w){1,9}\+?(?:\\b)?|(?:\\S|\\d|\[(?:\w|\\w|-)+\])\+?)", re.ASCII)

_Sizes = tuple[str, ...]
_Rule = Callable[[Any, dict[str, int]], bool]


def check_transformer(transformer: Any) -> None:
    """Refuse a transformer of :data:`TRANSFORMERS` whose attributes fitting could not have given.

    Raises:
        ConfigError: an attribute is unknown, missing, or of another type, shape or range; the message names it.
    """
    name = type(transformer).__name__
    parameters = set(transformer._get_param_names())
    rules = {**_COMMON, **_RULES.get(name, {})}
    learned = {key: value for key, value in vars(transformer).items() if key not in parameters}
    for key in learned.keys() - rules.keys():
        raise ConfigError(f"{name} has no attribute {key!r:.80} that fitting gives it in this version of scikit-learn")
    _check_parameters(transformer, name)
    if not learned:
        return
    missing = _RULES.get(name, {}).keys() - learned.keys() - _OPTIONAL
    if missing:
        raise ConfigError(f"{name} lacks {', '.join(sorted(missing))}, which fitting gives it")
    sizes: dict[str, int] = {}
    for key in sorted(learned, key=lambda key: key != "n_features_in_"):  # the others are compared with it
        try:
            is_right = rules[key](learned[key], sizes)
        except (TypeError, ValueError, LookupError, AttributeError, OverflowError):
            is_right = False
        if not is_right:
            raise ConfigError(f"{name} with {key}={shown(learned[key])} is not what fitting gives: another type, shape or range")
    relation = _RELATIONS.get(name)
    try:
        is_right = relation is None or relation(transformer)
    except (TypeError, ValueError, LookupError, AttributeError, OverflowError):
        is_right = False
    if not is_right:
        raise ConfigError(f"{name} has attributes that contradict each other: none that fitting gives. Fit it anew")


def _check_parameters(transformer: Any, name: str) -> None:
    parameters = {key: vars(transformer).get(key) for key in transformer._get_param_names()}
    if "n_jobs" in parameters:
        transformer.n_jobs = parameters["n_jobs"] = None  # the author of a state does not decide how many processes start here
    for key, allowed in _ALLOWED.items():
        if key in parameters and not allowed(parameters[key]):
            raise ConfigError(f"{name} with {key}={shown(parameters[key])} is no plain data{_WHY.get(key, '')}")
    # A pipeline's steps are checked here; LabelEncoder has no parameters.
    if name not in ("Pipeline", "FeatureUnion", "LabelEncoder"):
        try:
            transformer._validate_params()
        except (ValueError, TypeError, AttributeError, LookupError) as error:
            raise ConfigError(f"{name} cannot have these parameters: {error!s:.300}") from error


# ---------------------------------------------------------------------- what an attribute may be


def _numbers(*names: str, kinds: str = "biuf", optional: bool = False) -> _Rule:
    """An array of numbers, whose sizes are equal wherever they have the same name."""

    def rule(value: Any, sizes: dict[str, int]) -> bool:
        if value is None:
            return optional
        if not isinstance(value, np.ndarray) or value.dtype.kind not in kinds or value.ndim != len(names):
            return False
        return all(sizes.setdefault(name, size) == size for name, size in zip(names, value.shape, strict=True))

    return rule


def _count(name: str | None = None) -> _Rule:
    """How many there are of something; under a name, as many as the arrays have."""

    def rule(value: Any, sizes: dict[str, int]) -> bool:
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)) or not 0 <= value <= _MOST_FEATURES:
            return False
        return name is None or sizes.setdefault(name, int(value)) == value

    return rule


def _is_number(value: Any, sizes: dict[str, int]) -> bool:
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool)


def _seen(value: Any, sizes: dict[str, int]) -> bool:
    return _is_number(value, sizes) or _numbers("features", kinds="iuf")(value, sizes)


def _one_of(*types: Any) -> _Rule:
    return lambda value, sizes: value is None or isinstance(value, types)


def _categories(value: Any) -> bool:
    """Values that differ; numbers ascend, for scikit-learn looks them up by bisection."""
    if not isinstance(value, np.ndarray) or value.ndim != 1 or value.dtype.kind not in "biufUSO":
        return False
    if value.dtype.kind in "biuf":
        known = value[~np.isnan(value)] if value.dtype.kind == "f" else value
        return (
            bool((known[1:] > known[:-1]).all()) and len(value) - len(known) <= 1 and np.array_equal(value[: len(known)], known)
        )
    return len(set(value.tolist())) == len(value)


def _lists_of_categories(value: Any, sizes: dict[str, int]) -> bool:
    return (
        isinstance(value, list)
        and sizes.setdefault("features", len(value)) == len(value)
        and all(len(each) and _categories(each) for each in value)
    )


def _is_list(value: Any, sizes: dict[str, int]) -> bool:
    return isinstance(value, list)


def _is_vocabulary(value: Any, sizes: dict[str, int]) -> bool:
    """Texts, numbered from 0 on."""
    return (
        isinstance(value, dict)
        and all(isinstance(word, str) for word in value)
        and all(type(number) is int or isinstance(number, np.integer) for number in value.values())
        and sorted(map(int, value.values())) == list(range(len(value)))
    )


def _is(name: str) -> _Rule:
    return lambda value, sizes: type(value).__name__ == name and type(value) in TRANSFORMERS.values()


def _is_text(value: Any, sizes: dict[str, int]) -> bool:
    return isinstance(value, str)


def _is_flag(value: Any, sizes: dict[str, int]) -> bool:
    return isinstance(value, bool)


_OUTPUTS: Final = frozenset(("default", "pandas", "polars", None))
_COMMON: Final[Mapping[str, _Rule]] = {
    "n_features_in_": _count("features"),
    "feature_names_in_": _numbers("features", kinds="UO"),
    "_sklearn_output_config": lambda value, sizes: set(value) <= {"transform"} and set(value.values()) <= _OUTPUTS,
}
_OPTIONAL: Final = frozenset(
    ("n_samples_seen_", "idf_", "_infrequent_indices", "_default_to_infrequent_mappings", "_missing_indices", "indicator_")
)
_PER_FEATURE, _PER_COMPONENT = _numbers("features"), _numbers("components")
_COMPONENTS: Final[Mapping[str, _Rule]] = {
    "components_": _numbers("components", "features"),
    "explained_variance_": _PER_COMPONENT,
    "explained_variance_ratio_": _PER_COMPONENT,
    "singular_values_": _PER_COMPONENT,
}
_MAYBE = _numbers("features", optional=True)
_ONE_HOT: Final[Mapping[str, _Rule]] = {
    "categories_": _lists_of_categories,
    "_infrequent_enabled": _is_flag,
    "_infrequent_indices": _is_list,
    "_default_to_infrequent_mappings": _is_list,
}
_TEXTS: Final[Mapping[str, _Rule]] = {"vocabulary_": _is_vocabulary, "fixed_vocabulary_": _is_flag}

#: What fitting learns, by transformer.
_RULES: Final[Mapping[str, Mapping[str, _Rule]]] = {
    "StandardScaler": {"n_samples_seen_": _seen, "mean_": _MAYBE, "var_": _MAYBE, "scale_": _MAYBE},
    "MinMaxScaler": {
        "n_samples_seen_": _seen,
        **dict.fromkeys(("scale_", "min_", "data_min_", "data_max_", "data_range_"), _PER_FEATURE),
    },
    "MaxAbsScaler": {"n_samples_seen_": _seen, "max_abs_": _PER_FEATURE, "scale_": _PER_FEATURE},
    "RobustScaler": {"center_": _MAYBE, "scale_": _MAYBE},
    "Normalizer": {},
    "Binarizer": {},
    "PowerTransformer": {"lambdas_": _PER_FEATURE, "_scaler": _is("StandardScaler")},
    "QuantileTransformer": {
        "n_quantiles_": _count("quantiles"),
        "references_": _numbers("quantiles"),
        "quantiles_": _numbers("quantiles", "features"),
    },
    "KBinsDiscretizer": {
        "bin_edges_": _numbers("features", kinds="O"),
        "n_bins_": _numbers("features", kinds="iu"),
        "_encoder": _is("OneHotEncoder"),
    },
    "PolynomialFeatures": dict.fromkeys(("_min_degree", "_max_degree", "n_output_features_", "_n_out_full"), _count()),
    "OneHotEncoder": {
        **_ONE_HOT,
        "drop_idx_": _numbers("features", kinds="O", optional=True),
        "_drop_idx_after_grouping": _numbers("features", kinds="O", optional=True),
        "_n_features_outs": _is_list,
    },
    "OrdinalEncoder": {**_ONE_HOT, "_missing_indices": _one_of(dict)},
    "LabelEncoder": {"classes_": lambda value, sizes: _categories(value)},
    "LabelBinarizer": {"classes_": lambda value, sizes: _categories(value), "y_type_": _is_text, "sparse_input_": _is_flag},
    "SimpleImputer": {
        "_fit_dtype": _one_of(np.dtype),
        "_fill_dtype": _one_of(np.dtype),
        "indicator_": lambda value, sizes: value is None,
        "statistics_": _numbers("features", kinds="biufUSO"),
    },
    "PCA": {
        **_COMPONENTS,
        "_fit_svd_solver": _is_text,
        "mean_": _PER_FEATURE,
        "noise_variance_": _is_number,
        "n_samples_": _is_number,
        "n_components_": _count("components"),
    },
    "IncrementalPCA": {
        **_COMPONENTS,
        "mean_": _PER_FEATURE,
        "var_": _PER_FEATURE,
        "noise_variance_": _is_number,
        "n_samples_seen_": _is_number,
        "n_components_": _count("components"),
        "batch_size_": _is_number,
    },
    "TruncatedSVD": _COMPONENTS,
    "DictVectorizer": {"vocabulary_": _is_vocabulary, "feature_names_": _is_list},
    "CountVectorizer": _TEXTS,
    "TfidfVectorizer": {**_TEXTS, "_tfidf": _is("TfidfTransformer")},
    "TfidfTransformer": {"idf_": _numbers("features", kinds="f")},
    "HashingVectorizer": {},
    "Pipeline": {},
    "FeatureUnion": {},
}


def _is_simple_pattern(pattern: Any) -> bool:
    return pattern is None or (isinstance(pattern, str) and _LINEAR_PATTERN.fullmatch(pattern) is not None)


def _are_ngrams(value: Any) -> bool:
    return len(value) == 2 and all(type(n) is int for n in value) and 1 <= value[0] <= value[1] <= _LONGEST_NGRAM


def _are_degrees(value: Any) -> bool:
    degrees = value if isinstance(value, tuple) else (value,)
    return all(type(degree) is int and 0 <= degree <= _MOST_DEGREES for degree in degrees)


def _are_steps(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(step, tuple)
        and len(step) == 2
        and isinstance(step[0], str)
        and (step[1] in (None, "passthrough", "drop") if not hasattr(step[1], "fit") else type(step[1]) in TRANSFORMERS.values())
        for step in value
    )


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, (str, int, float, np.generic))


def _is_vocabulary_or_list(value: Any) -> bool:
    if value is None or _is_vocabulary(value, {}):
        return True
    return isinstance(value, (list, tuple, set, frozenset)) and all(isinstance(word, str) for word in value)


#: Parameters that scikit-learn checks too little for a state that anyone may have written.
_ALLOWED: Final[Mapping[str, Callable[[Any], bool]]] = {
    "memory": lambda value: value is None,
    "input": lambda value: value in ("content", "dict", "pair", "string"),
    "tokenizer": lambda value: value is None,
    "preprocessor": lambda value: value is None,
    "analyzer": lambda value: value in ("word", "char", "char_wb"),
    "token_pattern": _is_simple_pattern,
    "ngram_range": _are_ngrams,
    "vocabulary": _is_vocabulary_or_list,
    "degree": _are_degrees,
    "n_features": lambda value: isinstance(value, (int, np.integer)) and 1 <= int(value) <= _MOST_FEATURES,
    "random_state": lambda value: value is None or isinstance(value, (int, np.integer)),
    "fill_value": _is_scalar,
    "missing_values": _is_scalar,
    "steps": _are_steps,
    "transformer_list": _are_steps,
    "transformer_weights": lambda value: value is None or (isinstance(value, dict) and all(map(_is_scalar, value.values()))),
}
_WHY: Final[Mapping[str, str]] = {
    "memory": ": it reads or writes files",
    "input": ": it reads or writes files",
    "token_pattern": (
        r": of regular expressions, only those are kept that take no longer than a text is long, such as '(?u)\b\w\w+\b', '\w+', "
        r"'\S+' or '[a-z0-9]+'. Keep the encoder as a program that fits it anew"
    ),
    "n_features": ": it makes a list of so many names",
}


# ---------------------------------------------------------------------- what attributes must be to each other


def _is_one_hot(encoder: Any) -> bool:
    _check_infrequent(encoder)
    n_grouped = [
        len(each) - (0 if infrequent is None else len(infrequent) - 1)
        for each, infrequent in zip(encoder.categories_, _infrequent(encoder), strict=True)
    ]
    for dropped, limits in (
        (encoder.drop_idx_, [len(each) for each in encoder.categories_]),
        (encoder._drop_idx_after_grouping, n_grouped),
    ):
        if dropped is not None:
            _check(
                all(
                    number is None or (isinstance(number, (int, np.integer)) and 0 <= number < limit)
                    for number, limit in zip(dropped.tolist(), limits, strict=True)
                )
            )
    _check((encoder.drop_idx_ is None) == (encoder._drop_idx_after_grouping is None))
    # as scikit-learn itself counts them
    expected: list[Any] = encoder._compute_n_features_outs()
    return all(isinstance(n, (int, np.integer)) for n in encoder._n_features_outs) and encoder._n_features_outs == expected


def _is_ordinal(encoder: Any) -> bool:
    _check_infrequent(encoder)
    return all(
        type(feature) is int and 0 <= feature < len(encoder.categories_) and 0 <= number < len(encoder.categories_[feature])
        for feature, number in getattr(encoder, "_missing_indices", {}).items()
    )


def _infrequent(encoder: Any) -> Sequence[Any]:
    found = encoder._infrequent_indices if encoder._infrequent_enabled else [None] * len(encoder.categories_)
    return [None if each is None or not len(each) else each for each in found]


def _check_infrequent(encoder: Any) -> None:
    if not encoder._infrequent_enabled:
        return
    mappings = encoder._default_to_infrequent_mappings
    for categories, infrequent, mapping in zip(encoder.categories_, _infrequent(encoder), mappings, strict=True):
        _check((infrequent is None) == (mapping is None))
        if infrequent is not None:
            _check(infrequent.dtype.kind in "iu" and infrequent.ndim == 1 and bool((np.diff(infrequent) > 0).all()))
            _check(infrequent[0] >= 0 and infrequent[-1] < len(categories))
            n_frequent = len(categories) - len(infrequent)
            expected = np.full(len(categories), n_frequent)
            expected[np.setdiff1d(np.arange(len(categories)), infrequent)] = np.arange(n_frequent)
            _check(np.array_equal(mapping, expected))


def _are_bins(discretizer: Any) -> bool:
    edges, n_bins, encoder = discretizer.bin_edges_, discretizer.n_bins_, getattr(discretizer, "_encoder", None)
    _check(all(isinstance(each, np.ndarray) and each.dtype.kind == "f" and each.ndim == 1 for each in edges))
    _check([len(each) - 1 for each in edges] == n_bins.tolist())
    return encoder is None or [each.tolist() for each in encoder.categories_] == [list(range(n)) for n in n_bins.tolist()]


def _are_combinations(features: Any) -> bool:
    again = type(features)(**features.get_params()).fit(np.zeros((1, features.n_features_in_)))
    return all(getattr(features, name) == getattr(again, name) for name in _RULES["PolynomialFeatures"])


def _has_idf_of_each_word(vectorizer: Any) -> bool:
    idf = getattr(vectorizer._tfidf, "idf_", None)
    return idf is None or len(idf) == len(vectorizer.vocabulary_)


def _has_names_in_order(vectorizer: Any) -> bool:
    vocabulary = vectorizer.vocabulary_
    return bool(vectorizer.feature_names_ == sorted(vocabulary, key=vocabulary.__getitem__))


def _is_scaled(transformer: Any) -> bool:
    return getattr(transformer._scaler, "n_features_in_", None) in (None, transformer.n_features_in_)


def _check(statement: bool) -> None:
    if not statement:
        raise ValueError


_RELATIONS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "OneHotEncoder": _is_one_hot,
    "OrdinalEncoder": _is_ordinal,
    "KBinsDiscretizer": _are_bins,
    "PolynomialFeatures": _are_combinations,
    "PowerTransformer": _is_scaled,
    "LabelBinarizer": lambda binarizer: binarizer.y_type_ in ("binary", "multiclass"),
    "TfidfVectorizer": _has_idf_of_each_word,
    "DictVectorizer": _has_names_in_order,
}
