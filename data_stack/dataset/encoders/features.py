"""Rows of mixed features as one matrix of numbers, an encoder for each feature."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.encoders.categorical import CategoricalEncoder
from data_stack.dataset.encoders.columns import Column
from data_stack.dataset.encoders.continuous import ContinuousEncoder
from data_stack.dataset.encoders.encoder import Encoder, Fitting, Learner
from data_stack.dataset.encoders.errors import EncodingError
from data_stack.dataset.encoders.feature_rows import Feature, FeatureRows
from data_stack.dataset.encoders.transformer import EncoderLike, SklearnEncoder, as_encoder
from data_stack.exception import ConfigError
from data_stack.util.request_limit import check_request
from data_stack.util.stacked_values import objects

__all__ = ["FeatureEncoder"]

Matrix = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.intp]


@dataclass
class _Part:
    """Features that one encoder encodes: one, or several as a table."""

    features: tuple[Feature, ...]
    encoder: Encoder
    is_learning: bool

    @property
    def name(self) -> str:
        return f"feature {self.features[0]!r}" if len(self.features) == 1 else f"features {list(self.features)!r:.80}"

    @property
    def is_scalar(self) -> bool:
        """Whether it is one number; of one that is not scaled nobody knows that before there is a value."""
        return len(self.features) == 1 and isinstance(self.encoder, ContinuousEncoder) and self.encoder.value_shape in ((), None)

    def column(self, rows: FeatureRows) -> Column:
        return rows.column(self.features[0]) if len(self.features) == 1 else rows.block(self.features)

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except EncodingError as error:
            raise error.within(self.name) from error
        except ConfigError as error:
            raise ConfigError(f"{self.name}: {error}") from error


class FeatureEncoder(Encoder):
    """Rows of features as one matrix of shape ``(n, output_size)``, float32: what each encoder makes, side by side.

    ::

        encoder = FeatureEncoder({("age", "height"): ContinuousEncoder(), "country": CategoricalEncoder(unknown="index")})
        encoded = train.encode(encoder, fit_on=train)

    A row is an array, a list, a dict of features, or a record of a structured array; many rows may also be an array of shape
    ``(n, n_features)`` or a data frame. Features are named by their positions, by keys, or by ``feature_names``. All are learned
    in one pass over the rows.

    Several features given one encoder get an encoder like it each, except for transformers of scikit-learn, which encode them
    together. An encoder that is fitted already when it is given stays as it is.

    Args:
        encoders: an encoder for each feature, or tuple of features, in the order of the output.
        feature_names: what the positions in a row are called, where rows are arrays or lists.

    Raises:
        ConfigError: a feature is named twice, or there is nothing to encode.
    """

    kind = "features"
    is_per_feature = False

    def __init__(
        self,
        encoders: Mapping[Any, EncoderLike],
        feature_names: Sequence[str] | None = None,
    ) -> None:
        if not isinstance(encoders, Mapping):
            raise ConfigError(f"encoders are a dict by feature, got {encoders!r:.80}")
        if not encoders:
            raise ConfigError("there is no feature to encode: encoders are empty")
        self.feature_names = feature_names
        self._parts: list[_Part] = []
        self._plan: _Plan | None = None
        taken: list[Encoder] = []
        known: set[Feature] = set()
        for key, given in encoders.items():
            features = tuple(_check_feature(feature) for feature in (key if isinstance(key, tuple) else (key,)))
            if not features:
                raise ConfigError(f"an encoder is given no feature: (): {given!r:.80}")
            encoder = as_encoder(given)
            groups = [(feature,) for feature in features] if encoder.is_per_feature else [features]
            for group in groups:
                for feature in group:
                    if feature in known:
                        raise ConfigError(f"feature {feature!r} is named twice")
                    known.add(feature)
                # Of its own, so that fitting one for this feature does not change what another has learned.
                is_taken = any(encoder._fits is each._fits for each in taken)
                own = encoder._like_this() if is_taken and not encoder.is_fitted else encoder
                taken.append(encoder)
                self._parts.append(_Part(group, own, not encoder.is_fitted))

    # ------------------------------------------------------------------ what it is

    def config(self) -> dict[str, Any]:
        """``encoders`` by feature, and ``feature_names``."""
        encoders = {part.features if len(part.features) > 1 else part.features[0]: part.encoder for part in self._parts}
        names = None if self._feature_names is None else list(self._feature_names)
        return {"encoders": encoders, "feature_names": names}

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """What the positions in a row are called; None if they have no names. Can be set until it is fitted."""
        return self._feature_names

    @feature_names.setter
    def feature_names(self, names: Sequence[str] | None) -> None:
        if names is not None and (isinstance(names, str) or not all(isinstance(name, str) for name in names)):
            raise ConfigError(f"feature_names is a list of strings, got {names!r:.80}")
        if names is not None and len(set(names)) < len(names):
            raise ConfigError(f"two features are called alike: {list(names)!r:.200}")
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
        """The feature's name where one number becomes of it, otherwise with the number's: ``"country=FR"``, ``"words.3"``."""
        return self.names_after(self._feature_names)

    def names_after(self, names: Sequence[str] | None) -> tuple[str, ...] | None:
        """:attr:`output_names`, with the features called by ``names`` where they are positions."""
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
            raise ConfigError("what there is to learn, the encoders of its features have learned")
        self._plan = None
        super()._remember(learned)

    # ------------------------------------------------------------------ encoding

    def _get_plan(self) -> _Plan:
        # A part may have been fitted anew by someone who holds its encoder.
        learned = [part.encoder._learned for part in self._parts]
        if self._plan is None or any(map(operator.is_not, self._plan.learned, learned)):
            self._plan = _Plan(self._parts, learned)
        return self._plan

    def _transform(self, column: Column) -> Column:
        return self._get_plan().transform(FeatureRows(column, self._positions))

    def _inverse(self, column: Column) -> Column:
        """The rows again: an array where all positions of it were encoded, otherwise dicts of the features that were."""
        plan = self._get_plan()
        if column.ndim != 2 or column.shape[1] != plan.size:
            raise ConfigError(f"a matrix of {plan.size} columns is needed, got the shape {column.shape}")
        columns: dict[Feature, Column] = {}
        for part, place in zip(plan.parts, plan.places, strict=True):
            encoded = column[:, place]
            if isinstance(part.encoder, CategoricalEncoder) and part.encoder.target_kind == "label":
                encoded = np.rint(encoded[:, 0]).astype(np.int64)
            elif isinstance(part.encoder, ContinuousEncoder):
                encoded = encoded.reshape(len(column), *(part.encoder.value_shape or ()))
            decoded = part.run(part.encoder.inverse, encoded)
            if len(part.features) == 1:
                columns[part.features[0]] = decoded
            else:
                columns.update({feature: decoded[:, number] for number, feature in enumerate(part.features)})
        if columns.keys() == set(range(len(columns))):
            rows = [columns[number] for number in range(len(columns))]
            if all(each.dtype.kind in "biuf" and each.ndim == 1 for each in rows):
                return np.stack(rows, axis=1)
            return objects([list(row) for row in zip(*(each.tolist() for each in rows), strict=True)])
        return objects([dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_plan": None}

    def __repr__(self) -> str:
        features = ", ".join(repr(feature) for part in self._parts for feature in part.features)
        return f"<FeatureEncoder of {features:.120}{'' if self.is_fitted else ', not fitted'}>"


class _FeaturesLearner(Learner):
    def __init__(self, encoder: FeatureEncoder) -> None:
        self._positions = encoder._positions
        self._fittings = [(part, Fitting(part.encoder)) for part in encoder._parts if part.is_learning]

    def add(self, block: Column, first: int) -> None:
        rows = FeatureRows(block, self._positions)
        for part, fitting in self._fittings:
            part.run(fitting.add, part.run(part.column, rows))

    def finish(self) -> dict[str, Any]:
        for part, fitting in self._fittings:
            part.run(fitting.finish)
        return {}


class _Plan:
    """Where what becomes of each feature goes, and which features are numbers that are scaled in one operation.

    Attributes:
        parts: features with their encoders.
        places: the columns of the matrix that become of each part.
        size: number of columns.
        learned: what the encoders had learned when this was made.
    """

    def __init__(self, parts: list[_Part], learned: list[Any]) -> None:
        self.parts, self.learned = parts, learned
        ends = [0]
        for part in parts:
            size = 1 if part.is_scalar else part.encoder.output_size
            if size is None and isinstance(part.encoder, SklearnEncoder):
                size = part.encoder.output_size_of(len(part.features))
            if size is None:
                raise ConfigError(f"{part.name}: nobody knows how many numbers {part.encoder!r} makes of it")
            ends.append(ends[-1] + size)
        self.places = [slice(start, stop) for start, stop in itertools.pairwise(ends)]
        self.size = ends[-1]
        scalars: list[Any] = [(part, place.start) for part, place in zip(parts, self.places, strict=True) if part.is_scalar]
        self._scalars = [part.features[0] for part, _ in scalars]
        self._columns = np.array([column for _, column in scalars], dtype=np.intp)
        self._centre = np.array([float(part.encoder.centre) for part, _ in scalars])
        self._scale = np.array([float(part.encoder.scale) for part, _ in scalars])

    def transform(self, rows: FeatureRows) -> Matrix:
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

    def _write_scalars(self, rows: FeatureRows, matrix: Matrix) -> bool:
        """Scale single numbers into the matrix; False where they are something else than finite numbers of an array."""
        if not self._scalars or rows.array is None or rows.array.dtype.kind not in "biuf":
            return False
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = ((rows.block(self._scalars) - self._centre) / self._scale).astype(np.float32)
        if not np.isfinite(scaled).all():
            return False
        matrix[:, self._columns] = scaled
        return True

    def _write(self, part: _Part, place: slice, rows: FeatureRows, matrix: Matrix) -> None:
        column = part.column(rows)
        encoded = part.run(part.encoder.transform, column)
        n_columns = place.stop - place.start
        if encoded.size != len(column) * n_columns:
            raise ConfigError(f"{part.name}: {part.encoder!r} made shape {encoded.shape[1:]} of it, not {n_columns} numbers")
        try:
            with np.errstate(over="ignore"):
                matrix[:, place] = encoded.reshape(len(column), n_columns)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{part.name}: {part.encoder!r} made no numbers of it: {error}") from error

    def _ones(self, part: _Part, encoder: CategoricalEncoder, rows: FeatureRows, starts: IntArray) -> IntArray:
        """Where the ones of a feature's vectors go among all numbers of the matrix; the vectors begin at ``starts``."""
        codes: IntArray = part.run(encoder._codes, part.column(rows))
        if codes.shape != starts.shape:
            raise ConfigError(f"{part.name}: its values are no single values, but of shape {codes.shape[1:]}")
        return (starts + codes)[codes >= 0] if encoder.unknown == "zeros" else starts + codes


def _check_feature(feature: Any) -> Feature:
    if isinstance(feature, (int, np.integer)) and not isinstance(feature, bool):
        return int(feature)
    if isinstance(feature, str):
        return str(feature)
    raise ConfigError(f"a feature is named by a position or a string, not by {feature!r:.80}")
