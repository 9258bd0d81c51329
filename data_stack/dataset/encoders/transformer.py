"""Transformers of scikit-learn, and other objects with ``fit`` and ``transform``, as encoders."""

from __future__ import annotations

import contextlib
import inspect
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from data_stack.codecs.plain_data import shorten
from data_stack.dataset.encoders.columns import ColumnArray
from data_stack.dataset.encoders.encoder import Encoder, register_encoder
from data_stack.dataset.encoders.learner import Learner, WholeColumn
from data_stack.dataset.encoders.skops_state import (
    describe_transformer,
    load_transformer,
    write_transformer,
)
from data_stack.exception import ConfigError, ModelNotTrainedError
from data_stack.util.request_limit import check_request
from data_stack.values.stacked_values import as_array

EncoderLike = Any
"""An Encoder, or an object with ``fit`` and ``transform``, such as those of scikit-learn."""

#: Arguments of ``fit`` that are columns of labels or texts, and not tables.
_ARGUMENTS_OF_COLUMNS = ("y", "raw_documents")

#: Attributes with the transformers of a pipeline, which passes its data to the first one, and of a
#: union, which passes its data to all.
_ATTRIBUTES_OF_STEPS = ("steps", "transformer_list")


@register_encoder
class SklearnEncoder(Encoder):
    """Wraps a transformer; ``iterator.encode({0: StandardScaler()}, fit_on=train)`` does so itself.

    The transformer gets columns of shape ``(n, k)``, and a column of shape ``(n,)`` as ``(n, 1)``;
    transformers of labels and texts, whose ``fit`` takes ``y`` or ``raw_documents``, get the column
    as it is. Sparse results become dense; the dtype stays. Fitting needs the whole column. A
    transformer that multiplies matrices may encode a single row differently in its last bits.

    skops writes and reads :meth:`state`: it restores objects of scikit-learn and numpy and runs no
    other code; a transformer that contains functions or objects of other classes has no state. The
    encoder pickles if its transformer does.

    Args:
        transformer: any object with ``fit`` and ``transform``, and optionally
            ``inverse_transform``. As in scikit-learn, it is fitted if it has an attribute whose
            name ends in ``_``.

    Attributes:
        transformer: the wrapped object.

    Raises:
        ConfigError: the object lacks one of the two methods, or is a class.
    """

    kind = "sklearn"
    _state_parsers = {"sklearn": load_transformer}

    transformer: Any
    #: Whether the transformer takes two-dimensional data.
    _takes_tables: bool
    #: Whether the encoder was fitted on a column of shape ``(n,)``.
    _is_flat: bool
    #: The result of the transformer for no rows, shape ``(0, ...)``; None if it is unknown.
    _nothing: ColumnArray | None

    def __init__(self, transformer: Any) -> None:
        if isinstance(transformer, type):
            raise ConfigError(
                f"an encoder must be an object, not a class: write {transformer.__name__}()"
            )
        can_fit = callable(getattr(transformer, "fit", None))
        can_transform = callable(getattr(transformer, "transform", None))
        if not can_fit or not can_transform:
            raise ConfigError(
                f"{transformer!r:.80} is not an encoder: it lacks fit or transform; "
                "iterator.map takes functions"
            )
        # The names and the order of these attributes must stay: they decide the fingerprint of an
        # encoder whose transformer skops cannot write.
        self.transformer = transformer
        self._takes_tables = _takes_tables(transformer)
        self._is_flat = False
        self._nothing = None
        if _looks_fitted(transformer):
            self._learned = {}

    def config(self) -> dict[str, Any]:
        """Return ``transformer``."""
        return {"transformer": self.transformer}

    @property
    def is_fitted(self) -> bool:
        """Whether the encoder can transform; also if the transformer was fitted elsewhere."""
        return self._learned is not None or _looks_fitted(self.transformer)

    @property
    def output_size(self) -> int | None:
        """Number of encoded features; None if it is unknown before the first value."""
        names = self.output_names
        return None if names is None else len(names)

    @property
    def output_names(self) -> tuple[str, ...] | None:
        """Result of ``get_feature_names_out``; None if that fails."""
        return self.names_after(None)

    def names_after(self, names: Sequence[str] | None) -> tuple[str, ...] | None:
        """Return the result of ``get_feature_names_out(names)``; None if that fails."""
        name_features = getattr(self.transformer, "get_feature_names_out", None)
        if name_features is None or not self.is_fitted:
            return None
        names_as_list = None if names is None else list(names)
        try:
            return tuple(str(name) for name in name_features(names_as_list))
        except Exception:  # noqa: BLE001  # foreign code
            if names is None:
                return None
        # The transformer refuses these names, but may have names of its own.
        return self.names_after(None)

    # ------------------------------------------------------------------ learning

    def _learner(self) -> Learner | None:
        return WholeColumn(self._fit)

    def _fit(self, column: ColumnArray) -> dict[str, Any]:
        self._call("fit", self._as_input(column))
        learned: dict[str, Any] = {"is_flat": column.ndim == 1}
        with contextlib.suppress(ConfigError):  # it cannot transform a single row
            result = self._run("transform", self._as_input(column[:1]))
            learned["nothing"] = result[:0]
        return learned

    def _remember(self, learned: Mapping[str, Any]) -> None:
        self._is_flat = learned.get("is_flat", False)
        self._nothing = learned.get("nothing")
        super()._remember(learned)

    # ------------------------------------------------------------------ encoding

    def _transform(self, column: ColumnArray) -> ColumnArray:
        if len(column) == 0:
            return self._transform_nothing(column)
        result = self._run("transform", self._as_input(column))
        if len(result) != len(column):
            raise ConfigError(
                f"{shorten(self.transformer)} returned {len(result)} rows for {len(column)}"
            )
        return result

    def _transform_nothing(self, column: ColumnArray) -> ColumnArray:
        """Return the result for no rows, which has the shape and dtype of other results.

        As transformers refuse an input without rows, this is the result for one row, without that
        row: for the first row of fitting, or for a row of zeros.
        """
        if self._nothing is not None:
            empty_result: ColumnArray = self._nothing.copy()
            return empty_result
        zeros = np.zeros((1, *column.shape[1:]))
        with contextlib.suppress(Exception), warnings.catch_warnings():  # foreign code
            warnings.simplefilter("ignore")
            row: ColumnArray = self._run("transform", self._as_input(zeros))
            return np.array(row[:0])
        n_features = self.output_size
        if n_features is None:
            return np.empty(0)
        return np.empty((0, n_features))

    def _inverse(self, column: ColumnArray) -> ColumnArray:
        if not hasattr(self.transformer, "inverse_transform"):
            raise ConfigError(f"{shorten(self.transformer)} has no inverse_transform")
        result = self._run("inverse_transform", column)
        is_table_of_one_column = result.ndim == 2 and result.shape[1] == 1
        if self._is_flat and is_table_of_one_column:
            result = result[:, 0]
        return result

    def _as_input(self, column: ColumnArray) -> ColumnArray:
        """Return a column in the shape that the transformer takes."""
        if column.ndim == 1 and self._takes_tables:
            return column[:, np.newaxis]
        return column

    def _run(self, method_name: str, data: ColumnArray) -> ColumnArray:
        """Return what a method of the transformer returns for some rows, as an array.

        Raises:
            ModelNotTrainedError: the transformer is not fitted.
            ConfigError: the method failed.
        """
        result = self._call(method_name, data)
        is_sparse = hasattr(result, "toarray")
        if is_sparse:
            n_bytes = math.prod(result.shape) * result.dtype.itemsize
            check_request(n_bytes, "encoded values")
            result = result.toarray()
        return as_array(result)

    def _call(self, method_name: str, data: ColumnArray) -> Any:
        """Call a method of the transformer.

        Raises:
            ModelNotTrainedError: the transformer is not fitted.
            ConfigError: the method failed.
        """
        try:
            return getattr(self.transformer, method_name)(data)
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            if type(error).__name__ == "NotFittedError":
                raise ModelNotTrainedError(
                    f"{shorten(self.transformer)} is not fitted: {error}"
                ) from error
            transformer_name = type(self.transformer).__name__
            raise ConfigError(f"{transformer_name}.{method_name} failed: {error}") from error

    # ------------------------------------------------------------------ state

    def state(self) -> dict[str, Any]:
        """Return the encoder as JSON data.

        Raises:
            ConfigError: the transformer contains types that skops does not write or trust.
            MissingDependencyError: skops is not installed.
        """
        text = write_transformer(self.transformer)
        return {**super().state(), "config": {"transformer": {"sklearn": text}}}

    def _plain_config(self) -> dict[str, Any]:
        return {"transformer": describe_transformer(self.transformer)}


def as_encoder(encoder: Any) -> Encoder:
    """Return an encoder itself, or a SklearnEncoder of an object with ``fit`` and ``transform``.

    Raises:
        ConfigError: it is another object.
    """
    return encoder if isinstance(encoder, Encoder) else SklearnEncoder(encoder)


# ------------------------------------------------------------------------ questions to transformers


def _takes_tables(transformer: Any) -> bool:
    """Return whether a transformer takes two-dimensional data.

    The name of the argument of its ``fit`` says so, or its tags.
    """
    for attribute in _ATTRIBUTES_OF_STEPS:
        for _name, step in getattr(transformer, attribute, ()):
            if hasattr(step, "fit"):
                return _takes_tables(step)

    first_argument = _first_argument(transformer.fit)
    if first_argument is None:
        return True
    if first_argument in _ARGUMENTS_OF_COLUMNS:
        return False
    input_tags = getattr(_tags(transformer), "input_tags", None)
    return bool(getattr(input_tags, "two_d_array", True))


def _first_argument(method: Any) -> str | None:
    """Return the name of the first argument of a method; None if it has none, or is in C."""
    try:
        parameters = inspect.signature(method).parameters
    except (TypeError, ValueError):
        return None
    return next(iter(parameters), None)


def _looks_fitted(transformer: Any) -> bool:
    """Return whether a transformer is fitted, as scikit-learn's ``check_is_fitted`` says.

    scikit-learn is not imported for objects of other packages.
    """
    says_fitted = getattr(transformer, "__sklearn_is_fitted__", None)
    if callable(says_fitted):
        try:
            return bool(says_fitted())
        except ValueError:  # a NotFittedError: a union asks its transformers
            return False
    requires_fit = getattr(_tags(transformer), "requires_fit", True)
    if requires_fit is False:
        return True
    attributes = getattr(transformer, "__dict__", {})
    return any(name.endswith("_") and not name.startswith("_") for name in attributes)


def _tags(transformer: Any) -> Any:
    """Return the tags of a transformer; None if it has none."""
    with contextlib.suppress(Exception):  # foreign code
        return transformer.__sklearn_tags__()
    return None
