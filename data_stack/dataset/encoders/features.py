"""Encodes rows of mixed features as one matrix of numbers, each feature by its own encoder."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union

import numpy as np
import numpy.typing as npt

from data_stack.dataset.encoders.categorical import CategoricalEncoder
from data_stack.dataset.encoders.columns import Column, as_column
from data_stack.dataset.encoders.continuous import ContinuousEncoder
from data_stack.dataset.encoders.encoder import Encoder, Fitting, Learner
from data_stack.dataset.encoders.errors import EncodingError
from data_stack.dataset.encoders.transformer import EncoderLike, SklearnEncoder, as_encoder
from data_stack.exception import ConfigError
from data_stack.util.request_limit import check_request
from data_stack.util.stacked_values import stack_values
from data_stack.util.suggestions import did_you_mean

__all__ = ["FeatureEncoder"]

Matrix = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.intp]

Feature = Union[int, str]
"""Names a feature: a position in rows that are arrays or lists, a key in rows that are dicts."""


@dataclass
class _Part:
    """One feature, or several as a table, with their encoder."""

    features: tuple[Feature, ...]
    encoder: Encoder
    is_learning: bool

    @property
    def name(self) -> str:
        return f"feature {self.features[0]!r}" if len(self.features) == 1 else f"features {list(self.features)!r:.80}"

    @property
    def is_scalar(self) -> bool:
        """Whether it is one number (assumed where ``scaling="none"`` accepts any shape)."""
        return len(self.features) == 1 and isinstance(self.encoder, ContinuousEncoder) and self.encoder.value_shape in ((), None)

    def column(self, rows: _FeatureRows) -> Column:
        return rows.column(self.features[0]) if len(self.features) == 1 else rows.block(self.features)

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except EncodingError as error:
            raise error.within(self.name) from error
        except ConfigError as error:
            raise ConfigError(f"{self.name}: {error}") from error


class FeatureEncoder(Encoder):
    """Encodes rows of features as one float32 matrix of shape ``(n, output_size)``: the outputs of all encoders side by side.

    ::

        encoder = FeatureEncoder({("age", "height"): ContinuousEncoder(), "country": CategoricalEncoder(unknown="index")})
        encoded = train.encode(encoder, fit_on=train)

    A row is an array, a list, a dict of features, or a record of a structured array; several rows may also be an array of shape
    ``(n, n_features)`` or a data frame. Features are named by their positions, by keys, or by ``feature_names``. One pass over
    the rows fits all encoders.

    Each feature gets a copy of its encoder (:attr:`encoders`), as in scikit-learn's ColumnTransformer; a transformer of
    scikit-learn encodes a tuple of features together. Encoders that are fitted already are not fitted again.

    Args:
        encoders: an encoder for each feature, or tuple of features, in the order of the output.
        feature_names: names of the positions in a row, where rows are arrays or lists.

    Raises:
        ConfigError: a feature is named twice, or there are no features.
    """

    kind = "features"
    is_per_feature = False

    def __init__(
        self,
        encoders: Mapping[Any, EncoderLike],
        feature_names: Sequence[str] | None = None,
    ) -> None:
        if not encoders:
            raise ConfigError("encoders must be a dict with at least one feature")
        self.feature_names = feature_names
        self._parts: list[_Part] = []
        self._plan: _Plan | None = None
        known: set[Feature] = set()
        for key, given in encoders.items():
            features = tuple(_check_feature(feature) for feature in (key if isinstance(key, tuple) else (key,)))
            if not features:
                raise ConfigError(f"an encoder has no features: (): {given!r:.80}")
            encoder = as_encoder(given)
            groups = [(feature,) for feature in features] if encoder.is_per_feature else [features]
            for group in groups:
                for feature in group:
                    if feature in known:
                        raise ConfigError(f"feature {feature!r} is named twice")
                    known.add(feature)
                self._parts.append(_Part(group, copy.deepcopy(encoder), not encoder.is_fitted))

    # ------------------------------------------------------------------ what it is

    def config(self) -> dict[str, Any]:
        """``encoders`` by feature, and ``feature_names``."""
        encoders = {part.features if len(part.features) > 1 else part.features[0]: part.encoder for part in self._parts}
        names = None if self._feature_names is None else list(self._feature_names)
        return {"encoders": encoders, "feature_names": names}

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the positions in a row, if they have any. Can be set until the encoder is fitted."""
        return self._feature_names

    @feature_names.setter
    def feature_names(self, names: Sequence[str] | None) -> None:
        if names is not None and (isinstance(names, str) or not all(isinstance(name, str) for name in names)):
            raise ConfigError(f"feature_names must be a list of strings, got {names!r:.80}")
        if names is not None and len(set(names)) < len(names):
            raise ConfigError(f"two features have the same name: {list(names)!r:.200}")
        self._feature_names = None if names is None else tuple(names)
        self._positions = {} if names is None else {name: position for position, name in enumerate(names)}

    @property
    def encoders(self) -> dict[Any, Encoder]:
        """The encoder of each feature, or tuple of features."""
        encoders: dict[Any, Encoder] = self.config()["encoders"]
        return encoders

    @property
    def is_fitted(self) -> bool:
        """Whether all its encoders are."""
        return self._plan is not None or all(part.encoder.is_fitted for part in self._parts)

    @property
    def output_size(self) -> int | None:
        """Number of columns of the matrix."""
        return self._get_plan().size if self.is_fitted else None

    @property
    def output_names(self) -> tuple[str, ...] | None:
        """The feature's name if one number encodes it, otherwise with the number's name: ``"country=FR"``, ``"words.3"``."""
        return self.names_after(self._feature_names)

    def names_after(self, names: Sequence[str] | None) -> tuple[str, ...] | None:
        """:attr:`output_names`, with ``names`` for features that are positions."""
        if not self.is_fitted:
            return None
        plan = self._get_plan()
        called: list[str] = []
        for part, place in zip(plan.parts, plan.places, strict=True):
            features = [self._call(feature, names) for feature in part.features]
            size = place.stop - place.start
            outputs = part.encoder.names_after(features if len(features) > 1 else None)
            if size == 1 and len(features) == 1 and part.encoder.target_kind != "one_hot":
                called.append(features[0])
            elif outputs is not None and len(outputs) == size:
                prefix = "" if len(features) > 1 else features[0] + part.encoder.name_separator
                called.extend(prefix + output for output in outputs)
            else:
                called.extend(f"{'+'.join(features)}.{number}" for number in range(size))
        return tuple(called)

    def _call(self, feature: Feature, names: Sequence[str] | None) -> str:
        if names is not None and isinstance(feature, int) and -len(names) <= feature < len(names):
            return names[feature]
        return str(feature)

    # ------------------------------------------------------------------ learning

    def _learner(self) -> Learner | None:
        return _FeaturesLearner(self) if any(part.is_learning for part in self._parts) else None

    def _remember(self, learned: Mapping[str, Any]) -> None:
        if learned:
            raise ConfigError("a FeatureEncoder learns nothing besides the encoders of its features")
        self._plan = None
        super()._remember(learned)

    # ------------------------------------------------------------------ encoding

    def _get_plan(self) -> _Plan:
        if self._plan is None:
            self._plan = _Plan(self._parts)
        return self._plan

    def _transform(self, column: Column) -> Column:
        return self._get_plan().transform(_FeatureRows(column, self._positions))

    def __repr__(self) -> str:
        features = ", ".join(repr(feature) for part in self._parts for feature in part.features)
        return f"<FeatureEncoder of {features:.120}{'' if self.is_fitted else ', not fitted'}>"


class _FeaturesLearner(Learner):
    def __init__(self, encoder: FeatureEncoder) -> None:
        self._positions = encoder._positions
        self._fittings = [(part, Fitting(part.encoder)) for part in encoder._parts if part.is_learning]

    def add(self, block: Column, first: int) -> None:
        rows = _FeatureRows(block, self._positions)
        for part, fitting in self._fittings:
            part.run(fitting.add, part.run(part.column, rows))

    def finish(self) -> dict[str, Any]:
        for part, fitting in self._fittings:
            part.run(fitting.finish)
        return {}


class _Plan:
    """The layout of the matrix; it scales all single numbers in one operation, and writes all one-hot vectors in another.

    Attributes:
        parts: features with their encoders.
        places: the columns of the matrix of each part.
        size: number of columns.
    """

    def __init__(self, parts: list[_Part]) -> None:
        self.parts = parts
        ends = [0]
        for part in parts:
            size = 1 if part.is_scalar else part.encoder.output_size
            if size is None and isinstance(part.encoder, SklearnEncoder):
                size = part.encoder.output_size_of(len(part.features))
            if size is None:
                raise ConfigError(f"{part.name}: {part.encoder!r} does not know its output_size")
            ends.append(ends[-1] + size)
        self.places = [slice(start, stop) for start, stop in itertools.pairwise(ends)]
        self.size = ends[-1]
        scalars: list[Any] = [(part, place.start) for part, place in zip(parts, self.places, strict=True) if part.is_scalar]
        self._scalars = [part.features[0] for part, _ in scalars]
        self._columns = np.array([column for _, column in scalars], dtype=np.intp)
        self._centre = np.array([float(part.encoder.centre) for part, _ in scalars])
        self._scale = np.array([float(part.encoder.scale) for part, _ in scalars])

    def transform(self, rows: _FeatureRows) -> Matrix:
        check_request(4 * rows.n_rows * self.size, "encoded features")
        matrix = np.zeros((rows.n_rows, self.size), dtype=np.float32)
        if rows.n_rows == 0:
            return matrix
        are_scaled = self._write_scalars(rows, matrix)
        ones: list[IntArray] = []
        starts = np.arange(rows.n_rows) * self.size
        for part, place in zip(self.parts, self.places, strict=True):
            if are_scaled and part.is_scalar:
                continue
            if isinstance(part.encoder, CategoricalEncoder) and part.encoder.target_kind == "one_hot":
                ones.append(self._ones(part, part.encoder, rows, starts + place.start))
            else:
                self._write(part, place, rows, matrix)
        if ones:
            matrix.reshape(-1)[np.concatenate(ones)] = 1
        return matrix

    def _write_scalars(self, rows: _FeatureRows, matrix: Matrix) -> bool:
        """Scale single numbers into the matrix; False unless they are finite numbers of an array."""
        if not self._scalars or rows.array is None or rows.array.dtype.kind not in "biuf":
            return False
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = ((rows.block(self._scalars) - self._centre) / self._scale).astype(np.float32)
        if not np.isfinite(scaled).all():
            return False
        matrix[:, self._columns] = scaled
        return True

    def _write(self, part: _Part, place: slice, rows: _FeatureRows, matrix: Matrix) -> None:
        column = part.column(rows)
        encoded = part.run(part.encoder.transform, column)
        n_columns = place.stop - place.start
        if encoded.size != len(column) * n_columns:
            raise ConfigError(f"{part.name}: {part.encoder!r} returned the shape {encoded.shape[1:]}, not {n_columns} numbers")
        try:
            with np.errstate(over="ignore"):
                matrix[:, place] = encoded.reshape(len(column), n_columns)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{part.name}: {part.encoder!r} did not return numbers: {error}") from error

    def _ones(self, part: _Part, encoder: CategoricalEncoder, rows: _FeatureRows, starts: IntArray) -> IntArray:
        """The positions of the ones of a feature in the flat matrix; its vectors begin at ``starts``."""
        codes: IntArray = part.run(encoder._codes, part.column(rows))
        if codes.shape != starts.shape:
            raise ConfigError(f"{part.name}: its values must be single values, got the shape {codes.shape[1:]}")
        return (starts + codes)[codes >= 0] if encoder.unknown == "zeros" else starts + codes


class _FeatureRows:
    """Rows of features: an array of two or more dimensions, or of records, lists or dicts.

    Args:
        rows: the rows.
        names: positions of features by name, for rows that are arrays or lists.

    Attributes:
        n_rows: number of rows.
        array: the rows as an array of shape ``(n_rows, n_features)``, if they are one.

    Raises:
        ConfigError: the rows are single values.
    """

    def __init__(self, rows: Any, names: Mapping[str, int]) -> None:
        self._names, self.array = names, None
        self._features: Sequence[Feature] = ()
        self._column: Callable[[Any], Column]
        column = as_column(rows)
        self.n_rows = len(column)
        if column.dtype.names is not None and column.ndim == 1:
            self._features, self._column = column.dtype.names, column.__getitem__
        elif column.ndim >= 2:
            self.array = column if column.ndim == 2 else None
            self._features, self._column = range(column.shape[1]), lambda position: column[:, position]
        elif column.dtype == object and len(column):
            self._set_listed(column.tolist())
        elif len(column):
            raise ConfigError(f"rows of features must be arrays, lists or dicts, got single values of dtype {column.dtype}")

    def _set_listed(self, rows: list[Any]) -> None:
        if isinstance(rows[0], Mapping):
            self._features, self._column = list(rows[0]), lambda name: _values_of(rows, name)
            return
        n_features = len(rows[0]) if hasattr(rows[0], "__len__") else None
        for position, row in enumerate(rows):
            if n_features is None or isinstance(row, (str, bytes)) or not hasattr(row, "__len__") or len(row) != n_features:
                raise EncodingError(f"{row!r:.80} does not have as many features as the first row", position)
        columns = list(zip(*rows, strict=True))
        self._features, self._column = range(len(columns)), lambda position: stack_values(list(columns[position]))

    def column(self, feature: Feature) -> Column:
        """The values of one feature, shape ``(n_rows, ...)``.

        Raises:
            ConfigError: the rows have no such feature.
        """
        return self._column(self.key(feature))

    def block(self, features: Sequence[Feature]) -> Column:
        """Several features side by side, shape ``(n_rows, n_features)``."""
        if self.array is not None:
            return self.array[:, [self.key(feature) for feature in features]]
        columns = [self.column(feature) for feature in features]
        if any(column.ndim != 1 for column in columns):
            raise ConfigError(f"the features {list(features)!r:.120} must be single values to be encoded together")
        return np.stack(columns, axis=1)

    def key(self, feature: Feature) -> Any:
        """The position, counted from 0, or key of a feature in these rows."""
        if not isinstance(self._features, range):
            if feature not in self._features and self.n_rows:
                known = ", ".join(map(repr, self._features[:20]))
                raise ConfigError(f"rows have no feature {feature!r}{did_you_mean(feature, self._features)}: they have {known}")
            return feature
        n_features = len(self._features)
        position = self._names.get(feature, feature) if isinstance(feature, str) else feature
        if isinstance(position, str) or not -n_features <= position < n_features:
            known = f"feature_names are {', '.join(self._names)}" if self._names else "there are no feature_names"
            raise ConfigError(
                f"rows have no feature {feature!r}{did_you_mean(feature, self._names)}: "
                f"they have the positions 0 to {n_features - 1}; {known:.200}"
            )
        return position % n_features


def _values_of(rows: list[Any], name: str) -> Column:
    for position, row in enumerate(rows):
        if not isinstance(row, Mapping) or name not in row:
            known = f"its features are {', '.join(map(repr, row))}" if isinstance(row, Mapping) else "it is no dict"
            raise EncodingError(f"a row has no feature {name!r}: {known:.200}", position)
    return stack_values([row[name] for row in rows])


def _check_feature(feature: Any) -> Feature:
    if isinstance(feature, (int, np.integer)) and not isinstance(feature, bool):
        return int(feature)
    if isinstance(feature, str):
        return str(feature)
    raise ConfigError(f"a feature must be a position or a string, got {feature!r:.80}")
