"""The base of encoders: they learn from one split, transform whole batches, are stored as plain data."""

from __future__ import annotations

import binascii
import contextlib
import importlib
import os
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from data_stack.codecs.plain_data import canonical_json, from_plain, json_digest, shorten, to_plain
from data_stack.dataset.encoders.errors import EncodingError
from data_stack.dataset.meta import TargetKind
from data_stack.exception import ConfigError, MissingDependencyError, ModelNotTrainedError
from data_stack.io.storage_connectors import StorageConnector
from data_stack.io.storage_connectors.url import store_at
from data_stack.util.suggestions import did_you_mean
from data_stack.util.untrusted_text import JsonObject, seal_json
from data_stack.values.stacked_values import as_array, stack_values

Column = npt.NDArray[Any]
"""The values of one position or key of many samples, shape ``(n_samples, ...)``."""


_FORMAT = "data_stack.encoders 2"
_MAX_IN_A_RANGE = 1 << 20
_STATE_KEYS = {"kind", "config", "learned", "fitted_on"}


def as_column(values: Any) -> Column:
    """Values as an array of shape ``(n, ...)``: of numbers if they are numbers of one shape, otherwise of objects."""
    is_list = isinstance(values, Iterable) and not isinstance(values, (str, bytes, Mapping))
    try:
        is_array = hasattr(values, "__array__")
        column: Column = (
            as_array(values)
            if is_array
            else stack_values(list(values))
            if is_list
            else np.empty(())
        )
    except TypeError as error:  # masked, or a tensor of a dtype that numpy lacks, or sparse
        raise ConfigError(f"an encoder cannot convert this column to numpy: {error}") from error
    if column.ndim == 0:
        raise ConfigError(
            f"an encoder takes a column of shape (n, ...), not the single value {values!r:.80}"
        )
    return column


def first_place(found: npt.NDArray[np.bool_]) -> tuple[int, ...]:
    """Where the first one is."""
    return tuple(np.argwhere(found)[0].tolist())


_EncoderT = TypeVar("_EncoderT", bound="Encoder")

_KINDS: dict[str, type[Encoder]] = {}

_EncoderClass = TypeVar("_EncoderClass", bound="type[Encoder]")


def register_encoder(encoder_class: _EncoderClass) -> _EncoderClass:
    """Register an encoder of this package by its ``kind``; a class decorator. The modules of the package are scanned."""
    _KINDS[encoder_class.kind] = encoder_class
    return encoder_class


def built_in_kinds() -> dict[str, type[Encoder]]:
    """The classes of this package by their kinds; imports its modules."""
    for module in pkgutil.iter_modules([os.path.dirname(__file__)], f"{__package__}."):
        importlib.import_module(module.name)
    return _KINDS


class Learner(ABC):
    """Reads a column block by block and returns what an encoder remembers of it."""

    @abstractmethod
    def add(self, block: Column, first: int) -> None:
        """Read the next block, shape ``(n, ...)`` with n > 0; ``first`` is the position of its first value.

        Raises:
            EncodingError: a value cannot be learned from.
        """

    @abstractmethod
    def finish(self) -> dict[str, Any]:
        """The result, as values that can be written as plain data (numbers, strings, arrays, lists, dicts)."""


class WholeColumn(Learner):
    """A learner that needs the whole column: keeps all blocks and passes them to a function.

    Args:
        learn: takes the column and returns what the encoder remembers.
    """

    def __init__(self, learn: Callable[[Column], dict[str, Any]]) -> None:
        self._learn = learn
        self._blocks: list[Column] = []

    def add(self, block: Column, first: int) -> None:
        """Keep the block."""
        if self._blocks and block.shape[1:] != self._blocks[0].shape[1:]:
            raise EncodingError(
                f"values have the shape {block.shape[1:]}, those before {self._blocks[0].shape[1:]}",
                first,
            )
        self._blocks.append(block)

    def finish(self) -> dict[str, Any]:
        """What the function returns for the whole column."""
        return self._learn(np.concatenate(self._blocks))


class Encoder(ABC):
    """Transforms columns by what it learned from one of them.

    ``fit`` learns from one split; ``transform`` is then a pure function of a column of shape ``(n, ...)``: the same in every
    process, and independent for each value. What it learned is plain data (:meth:`state`), which
    :func:`~data_stack.dataset.encoders.save_encoder` stores. Encoders are equal if they transform alike.

    A subclass sets :attr:`kind` and defines :meth:`config` and :meth:`_transform`; optionally :meth:`_inverse`,
    :attr:`output_size` and :attr:`output_names`. Its constructor takes the items of ``config`` as keyword arguments. An encoder
    that learns defines :meth:`_learner` and :meth:`_remember`; any other calls ``self._remember({})`` in its constructor.

    Attributes:
        kind: the encoder's name, in states and for plugins.
        target_kind: what encoded targets are.
        fitted_on: fingerprint of the iterator that it was fitted on; None if unknown, or not fitted.
    """

    kind: ClassVar[str]
    target_kind: TargetKind | None = None
    fitted_on: str | None = None
    _learned: Mapping[str, Any] | None = None
    _keeps_shape = False
    _special: ClassVar[Mapping[str, Callable[[Any], Any]]] = {}

    # ------------------------------------------------------------------ what it does

    def fit(
        self: _EncoderT, columns: Column | Iterable[Any], *, fitted_on: str | None = None
    ) -> _EncoderT:
        """Learn from a column, or from its blocks one after the other; replaces what was learned before.

        Args:
            columns: an array or tensor of shape ``(n, ...)``, or a list of values; or the blocks of a column: a list of arrays,
                a generator.
            fitted_on: fingerprint of the iterator that they come from.

        Raises:
            ConfigError: there are no values, or a value cannot be learned from; the encoder is unchanged.
        """
        if self._learner() is None:
            return self
        if hasattr(columns, "read_column"):
            raise ConfigError(
                f"an encoder is fitted on a column, not on {columns!r:.80}: use iterator.read_column(0)"
            )
        is_list = isinstance(columns, (list, tuple)) and len(columns) > 0
        is_blocks = is_list and all(
            isinstance(item, np.ndarray) and item.ndim > 0 for item in columns
        )
        fitting = Fitting(self)
        for block in columns if is_blocks or isinstance(columns, Iterator) else [columns]:
            fitting.add(as_column(block))
        fitting.finish(fitted_on)
        return self

    def transform(self, batch: Any) -> Column:
        """Encode a column of shape ``(n, ...)``.

        Raises:
            ModelNotTrainedError: the encoder is not fitted.
            EncodingError: a value is unknown or of another kind; it names the value and its position.
        """
        self._check_fitted()
        return self._transform(as_column(batch))

    def inverse(self, batch: Any) -> Column:
        """Decode what :meth:`transform` returned.

        Raises:
            ModelNotTrainedError: the encoder is not fitted.
            ConfigError: the encoder has no inverse, or not for these values.
        """
        self._check_fitted()
        return self._inverse(as_column(batch))

    @property
    def is_fitted(self) -> bool:
        """Whether it can transform."""
        return self._learned is not None

    @property
    def output_size(self) -> int | None:
        """How many numbers encode a value; None if that varies or is not known before fitting."""
        return None

    @property
    def output_names(self) -> tuple[str, ...] | None:
        """Names of these numbers, if they have any."""
        return None

    @property
    def class_names(self) -> tuple[Any, ...] | None:
        """The encoded classes, in the order of their numbers."""
        return None

    def names_after(self, names: Sequence[str] | None) -> tuple[str, ...] | None:
        """:attr:`output_names` for an input whose numbers have these names; these, if the shape stays."""
        return tuple(names) if self._keeps_shape and names is not None else self.output_names

    # ------------------------------------------------------------------ what it is

    def state(self) -> dict[str, Any]:
        """The encoder as JSON data.

        Raises:
            ConfigError: a part of it is not plain data.
        """
        return {**self._without_origin(), "fitted_on": self.fitted_on}

    def fingerprint(self) -> str:
        """SHA-256 of what it learned and of what it was fitted on: 64 hex digits."""
        return json_digest({**self._without_origin(), "fitted_on": self.fitted_on})

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self) or not isinstance(other, Encoder):
            return NotImplemented
        with contextlib.suppress(
            ConfigError, MissingDependencyError
        ):  # something in one of them cannot be compared
            return self is other or canonical_json(self._without_origin()) == canonical_json(
                other._without_origin()
            )
        return False

    __hash__ = None  # type: ignore[assignment]  # it changes when it is fitted

    def __repr__(self) -> str:
        options = ", ".join(
            f"{name}={shorten(value)}" for name, value in self.config().items() if value is not None
        )
        return f"<{type(self).__name__}({options}){'' if self.is_fitted else ', not fitted'}>"

    # ------------------------------------------------------------------ for subclasses

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """The keyword arguments of its constructor: plain values and arrays."""

    @abstractmethod
    def _transform(self, column: Column) -> Column:
        """:meth:`transform`, when fitted; shape ``(n, ...)``, n may be 0."""

    def _inverse(self, column: Column) -> Column:
        """:meth:`inverse`, when fitted."""
        raise ConfigError(f"{self!r} has no inverse")

    def _learner(self) -> Learner | None:
        """A new learner; None if the encoder needs no fit."""
        return None

    def _remember(self, learned: Mapping[str, Any]) -> None:
        """Check what a learner returned, or what a state contains, and use it from now on.

        Raises:
            ConfigError, LookupError, TypeError, ValueError: a learner of this class returns nothing like it.
        """
        self._learned = dict(learned)

    # ------------------------------------------------------------------ inside

    def _without_origin(self) -> dict[str, Any]:
        learned = (
            None
            if self._learned is None
            else {name: to_plain(value) for name, value in self._learned.items()}
        )
        return {"kind": self.kind, "config": self._plain_config(), "learned": learned}

    def _plain_config(self) -> dict[str, Any]:
        return {name: to_plain(value) for name, value in self.config().items()}

    def _check_fitted(self) -> None:
        if not self.is_fitted:
            raise ModelNotTrainedError(
                f"{self!r} is not fitted: call encoder.fit(column), or iterator.encode(…, fit_on=train)"
            )


class Fitting:
    """Fits one encoder block by block; the encoder changes only in :meth:`finish`.

    Args:
        encoder: an encoder that learns.
    """

    def __init__(self, encoder: Encoder) -> None:
        self._encoder, self._n_values = encoder, 0
        self._learner: Any = encoder._learner()

    def add(self, block: Column) -> None:
        """Learn from the next values, shape ``(n, ...)``."""
        if len(block):
            self._learner.add(block, self._n_values)
            self._n_values += len(block)

    def finish(self, fitted_on: str | None = None) -> None:
        """Let the encoder remember.

        Raises:
            ConfigError: there were no values.
        """
        if self._n_values == 0:
            raise ConfigError(
                f"{self._encoder!r} cannot be fitted on no values: the column is empty"
            )
        self._encoder._remember(self._learner.finish())
        self._encoder.fitted_on = fitted_on


def check_choice(name: str, value: Any, choices: Sequence[str]) -> Any:
    """Return ``value``, or raise ConfigError if it is not one of ``choices``."""
    if not isinstance(value, str) or value not in choices:
        known, near = ", ".join(map(repr, choices)), did_you_mean(value, choices)
        raise ConfigError(f"{name} must be one of {known}, got {value!r:.80}{near}")
    return value


def save_encoder(
    encoder: Encoder, storage_connector: StorageConnector | str | os.PathLike[str], identifier: str
) -> None:
    """Store an encoder, fitted or not, under ``identifier``, as JSON with a digest; the store may be a path or a URL.

    Raises:
        ConfigError: a part of it is not plain data.
        StorageError: it could not be written.
    """
    store_at(storage_connector).set_resource(
        identifier, [seal_json({"format": _FORMAT, "encoder": encoder.state()})]
    )


def load_encoder(
    storage_connector: StorageConnector | str | os.PathLike[str],
    identifier: str,
    kinds: Mapping[str, Any] | None = None,
) -> Encoder:
    """Read the encoder stored under ``identifier``; it transforms bit by bit as it did where it was fitted.

    Args:
        storage_connector: the store, or its path or URL.
        identifier: in it.
        kinds: as of :func:`encoder_from_state`.

    Raises:
        ResourceNotFoundError: nothing is stored there.
        DatasetFileCorruptError: it is damaged, of another format, or not a stored encoder.
        ConfigError: it is of an unknown kind.
    """
    with store_at(storage_connector).get_resource(identifier) as resource:
        fields = JsonObject.unseal(resource.read(), f"the encoder in {identifier!r}")
    fields.known_format(_FORMAT)
    return encoder_from_state(fields.value("encoder"), kinds)


def encoder_from_state(state: Any, kinds: Mapping[str, type[Encoder]] | None = None) -> Encoder:
    """Rebuild the encoder whose ``state()`` this is.

    Args:
        state: the result of ``encoder.state()``; may come from an untrusted file.
        kinds: further classes by kind; :func:`data_stack.repository.encoders.encoder_from_state` knows those of plugins.

    Raises:
        ConfigError: the state is damaged, or of an unknown kind.
    """
    kinds = {**built_in_kinds(), **(kinds or {})}
    if not isinstance(state, dict) or state.keys() != _STATE_KEYS:
        raise ConfigError(
            f"the state of an encoder has {', '.join(sorted(_STATE_KEYS))}, got {shorten(state)}"
        )
    kind, config, learned, fitted_on = (
        state["kind"],
        state["config"],
        state["learned"],
        state["fitted_on"],
    )
    if not isinstance(kind, str) or kind not in kinds:
        advice = f"{did_you_mean(kind, kinds)}; one of a plugin is rebuilt by data_stack.repository.encoders"
        raise ConfigError(f"unknown kind of encoder {shorten(kind)}{advice}")
    try:
        if not isinstance(fitted_on, (str, type(None))):
            raise TypeError(f"fitted_on is a fingerprint, not {shorten(fitted_on)}")
        special = {"range": _short_range, **kinds[kind]._special}
        encoder = kinds[kind](
            **{name: from_plain(value, special) for name, value in config.items()}
        )
        if encoder._learner() is None and learned != {}:
            raise ValueError("it has nothing to learn")
        if encoder._learner() is not None and learned is not None:
            encoder._remember({name: from_plain(value, special) for name, value in learned.items()})
    except (
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        ArithmeticError,
        RecursionError,
        binascii.Error,
    ) as error:
        raise ConfigError(f"damaged state of a {kind!r} encoder: {error!s:.300}") from error
    encoder.fitted_on = fitted_on
    return encoder


def _short_range(ends: Any) -> range:
    """A range in a state; limited, because encoders turn these few bytes into lists.

    Raises:
        ConfigError: it is not a range, or longer than a million.
    """
    decoded: range = from_plain({"range": ends})
    if len(decoded) > _MAX_IN_A_RANGE:
        raise ConfigError(
            f"the state of an encoder has a range of {len(decoded):,} values; the limit is {_MAX_IN_A_RANGE:,}"
        )
    return decoded
