"""Wraps transformers of scikit-learn, and other objects with ``fit`` and ``transform``, as encoders."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import inspect
import io
import json
import math
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from data_stack.codecs.plain_data import shorten
from data_stack.dataset.encoders.encoder import (
    Column,
    Encoder,
    Learner,
    WholeColumn,
    register_encoder,
)
from data_stack.exception import (
    ConfigError,
    DataStackError,
    MissingDependencyError,
    ModelNotTrainedError,
)
from data_stack.util.request_limit import check_request
from data_stack.values.stacked_values import as_array

_SCHEMA = "schema.json"
#: Harmless, but not trusted by skops itself: SimpleImputer and KBinsDiscretizer store their dtype.
_TRUSTED = ["numpy.dtype"]


def load_transformer(text: Any) -> Any:
    """The transformer of a state; ``text`` may come from an untrusted file.

    Raises:
        ConfigError: the text is damaged, or contains types that skops does not trust.
        MissingDependencyError: skops is not installed.
    """
    skops = _skops()
    try:
        data = base64.b64decode(text, validate=True)
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            check_request(
                sum(member.file_size for member in archive.infolist()), "the state of a transformer"
            )
        return skops.loads(data, trusted=_TRUSTED)
    except DataStackError:
        raise
    except Exception as error:  # skops raises what the types that it makes do
        raise ConfigError(
            f"could not read the state of a transformer of scikit-learn: {error!s:.300}"
        ) from error


def _dump(transformer: Any) -> bytes:
    skops = _skops()
    try:
        data: bytes = skops.dumps(transformer)
        if untrusted := sorted(set(skops.get_untrusted_types(data=data)) - set(_TRUSTED)):
            raise TypeError(f"skops does not trust {', '.join(untrusted)}")
    except Exception as error:  # foreign code
        raise ConfigError(
            f"a {type(transformer).__name__} cannot be written as plain data: {error!s:.300}; pickle it"
        ) from error
    return data


def _skops() -> Any:
    try:
        from skops import io as skops_io
    except ImportError:
        raise MissingDependencyError(
            "writing a transformer of scikit-learn as plain data", "skops", extra="sklearn"
        ) from None
    return skops_io


EncoderLike = Any
"""An Encoder, or an object with ``fit`` and ``transform``, such as a transformer of scikit-learn."""


@register_encoder
class SklearnEncoder(Encoder):
    """Wraps a transformer: ``iterator.encode({0: StandardScaler()}, fit_on=train)`` does so by itself.

    The transformer gets columns of shape ``(n, k)``, and a column of shape ``(n,)`` as ``(n, 1)``; transformers of labels and
    texts, whose ``fit`` takes ``y`` or ``raw_documents``, get the column as it is. Sparse results become dense; the dtype stays.
    Fitting needs the whole column. A transformer that multiplies matrices may encode a single row differently in its last bits.

    skops writes and reads :meth:`state`: it restores objects of scikit-learn and numpy and runs no other code; a transformer
    that contains functions or objects of other classes has no state. The encoder pickles if its transformer does.

    Args:
        transformer: any object with ``fit`` and ``transform``, and optionally ``inverse_transform``. As in scikit-learn, it is
            fitted if it has an attribute whose name ends in ``_``.

    Attributes:
        transformer: the wrapped object.

    Raises:
        ConfigError: the object lacks one of the two methods, or is a class.
    """

    kind = "sklearn"
    _special = {"sklearn": load_transformer}

    def __init__(self, transformer: Any) -> None:
        if isinstance(transformer, type):
            raise ConfigError(
                f"an encoder must be an object, not a class: write {transformer.__name__}()"
            )
        if not callable(getattr(transformer, "fit", None)) or not callable(
            getattr(transformer, "transform", None)
        ):
            raise ConfigError(
                f"{transformer!r:.80} is not an encoder: it lacks fit or transform; iterator.map takes functions"
            )
        self.transformer = transformer
        self._takes_tables = _takes_tables(transformer)
        self._is_flat = False
        self._nothing: Column | None = None
        if _looks_fitted(transformer):
            self._learned = {}

    def config(self) -> dict[str, Any]:
        """``transformer``."""
        return {"transformer": self.transformer}

    @property
    def is_fitted(self) -> bool:
        """Whether it can transform; also if the transformer was fitted elsewhere."""
        return self._learned is not None or _looks_fitted(self.transformer)

    @property
    def output_size(self) -> int | None:
        """Number of encoded features; None if unknown before the first value."""
        return None if self.output_names is None else len(self.output_names)

    @property
    def output_names(self) -> tuple[str, ...] | None:
        """Result of ``get_feature_names_out``, if it works."""
        return self.names_after(None)

    def names_after(self, names: Sequence[str] | None) -> tuple[str, ...] | None:
        """Result of ``get_feature_names_out(names)``, if it works."""
        name = getattr(self.transformer, "get_feature_names_out", None)
        if name is None or not self.is_fitted:
            return None
        with contextlib.suppress(Exception):  # foreign code
            return tuple(map(str, name(None if names is None else list(names))))
        return None if names is None else self.names_after(None)

    def _learner(self) -> Learner | None:
        return WholeColumn(self._fit)

    def _fit(self, column: Column) -> dict[str, Any]:
        self._run("fit", self._as_input(column))
        learned: dict[str, Any] = {"is_flat": column.ndim == 1}
        with contextlib.suppress(ConfigError):  # it cannot transform a single row
            learned["nothing"] = self._run("transform", self._as_input(column[:1]))[:0]
        return learned

    def _remember(self, learned: Mapping[str, Any]) -> None:
        self._is_flat, self._nothing = learned.get("is_flat", False), learned.get("nothing")
        super()._remember(learned)

    def _transform(self, column: Column) -> Column:
        result = (
            self._run("transform", self._as_input(column))
            if len(column)
            else self._nothing_like(column).copy()
        )
        if len(result) != len(column):
            raise ConfigError(
                f"{shorten(self.transformer)} returned {len(result)} rows for {len(column)}"
            )
        return result

    def _inverse(self, column: Column) -> Column:
        if not hasattr(self.transformer, "inverse_transform"):
            raise ConfigError(f"{shorten(self.transformer)} has no inverse_transform")
        result = self._run("inverse_transform", column)
        return (
            result[:, 0] if self._is_flat and result.ndim == 2 and result.shape[1] == 1 else result
        )

    def _as_input(self, column: Column) -> Column:
        return column[:, np.newaxis] if column.ndim == 1 and self._takes_tables else column

    def _run(self, name: str, data: Column) -> Column:
        try:
            result = getattr(self.transformer, name)(data)
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            if type(error).__name__ == "NotFittedError":
                raise ModelNotTrainedError(
                    f"{shorten(self.transformer)} is not fitted: {error}"
                ) from error
            raise ConfigError(
                f"{type(self.transformer).__name__}.{name} failed: {error}"
            ) from error
        if name == "fit":
            return data
        if hasattr(result, "toarray"):  # a sparse matrix
            check_request(math.prod(result.shape) * result.dtype.itemsize, "encoded values")
            result = result.toarray()
        return as_array(result)

    def _nothing_like(self, column: Column) -> Column:
        """The result for no rows, which transformers refuse: that of the first row of fitting or of a row of zeros, emptied."""
        if self._nothing is not None:
            return self._nothing
        with contextlib.suppress(Exception), warnings.catch_warnings():  # foreign code
            warnings.simplefilter("ignore")
            return self._run("transform", self._as_input(np.zeros((1, *column.shape[1:]))))[:0]
        names = self.output_names
        return np.empty(0 if names is None else (0, len(names)))

    def state(self) -> dict[str, Any]:
        """The encoder as JSON data.

        Raises:
            ConfigError: the transformer contains types that skops does not write or trust.
            MissingDependencyError: skops is not installed.
        """
        text = base64.b64encode(_dump(self.transformer)).decode("ascii")
        return {**super().state(), "config": {"transformer": {"sklearn": text}}}

    def _plain_config(self) -> dict[str, Any]:
        """Equal for equal transformers: without the names of parts, which skops derives from memory addresses."""
        with zipfile.ZipFile(io.BytesIO(_dump(self.transformer))) as archive:
            digests = {
                name: hashlib.sha256(archive.read(name)).hexdigest()
                for name in archive.namelist()
                if name != _SCHEMA
            }

            def without_addresses(node: dict[str, Any]) -> dict[str, Any]:
                known = {key: value for key, value in node.items() if key != "__id__"}
                return {
                    key: digests.get(value, value) if key == "file" else value
                    for key, value in known.items()
                }

            return {"transformer": json.loads(archive.read(_SCHEMA), object_hook=without_addresses)}


def as_encoder(encoder: Any) -> Encoder:
    """``encoder`` itself, or a SklearnEncoder of an object with ``fit`` and ``transform``; ConfigError for other objects."""
    return encoder if isinstance(encoder, Encoder) else SklearnEncoder(encoder)


def _takes_tables(transformer: Any) -> bool:
    """Whether it takes two-dimensional data, by the name of fit's argument or by its tags."""
    for name in (
        "steps",
        "transformer_list",
    ):  # a pipeline passes its data to its first step, a union to all
        steps = [step for _, step in getattr(transformer, name, ()) if hasattr(step, "fit")]
        if steps:
            return _takes_tables(steps[0])
    try:
        first = next(iter(inspect.signature(transformer.fit).parameters.values())).name
    except (TypeError, ValueError, StopIteration):  # a method in C, or without arguments
        return True
    if first in ("y", "raw_documents"):
        return False
    return bool(getattr(getattr(_tags(transformer), "input_tags", None), "two_d_array", True))


def _looks_fitted(transformer: Any) -> bool:
    """Like scikit-learn's ``check_is_fitted``, which is not imported for other objects."""
    says = getattr(transformer, "__sklearn_is_fitted__", None)
    if callable(says):
        with contextlib.suppress(
            ValueError
        ):  # a NotFittedError is one: a union asks its transformers
            return bool(says())
        return False
    learned = (
        name
        for name in getattr(transformer, "__dict__", {})
        if name.endswith("_") and not name.startswith("_")
    )
    return getattr(_tags(transformer), "requires_fit", True) is False or any(learned)


def _tags(transformer: Any) -> Any:
    with contextlib.suppress(Exception):  # foreign code
        return transformer.__sklearn_tags__()
    return None
