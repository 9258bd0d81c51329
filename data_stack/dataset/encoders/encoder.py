"""The base class of encoders."""

from __future__ import annotations

import contextlib
import importlib
import os
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

from data_stack.codecs.plain_data import canonical_json, json_digest, shorten, to_plain
from data_stack.dataset.encoders.columns import ColumnArray, as_column
from data_stack.dataset.encoders.learner import Learner
from data_stack.dataset.meta import TargetKind
from data_stack.exception import ConfigError, MissingDependencyError, ModelNotTrainedError
from data_stack.util.suggestions import did_you_mean

_EncoderT = TypeVar("_EncoderT", bound="Encoder")
_EncoderClass = TypeVar("_EncoderClass", bound="type[Encoder]")

#: The classes that are decorated with :func:`register_encoder`, by their kinds.
_KINDS: dict[str, type[Encoder]] = {}


def register_encoder(encoder_class: _EncoderClass) -> _EncoderClass:
    """Register an encoder of this package by its ``kind``; a class decorator.

    :func:`built_in_kinds` finds the class in any module of the package.
    """
    _KINDS[encoder_class.kind] = encoder_class
    return encoder_class


def built_in_kinds() -> dict[str, type[Encoder]]:
    """Return the classes of this package by their kinds; imports the modules of the package."""
    for module in pkgutil.iter_modules([os.path.dirname(__file__)], f"{__package__}."):
        importlib.import_module(module.name)
    return _KINDS


class Encoder(ABC):
    """Transforms columns by what it learned from one of them.

    ``fit`` learns from one split. ``transform`` is then a pure function of a column of shape
    ``(n, ...)``: the same in every process, and independent for each value. What an encoder learned
    is plain data (:meth:`state`), which :func:`~data_stack.dataset.encoders.save_encoder` stores.
    Encoders are equal if they transform alike.

    A subclass sets :attr:`kind` and defines :meth:`config` and :meth:`_transform`; optionally
    :meth:`_inverse`, :attr:`output_size` and :attr:`output_names`. Its constructor takes the items
    of ``config`` as keyword arguments. An encoder that learns defines :meth:`_learner` and
    :meth:`_remember`; any other calls ``self._remember({})`` in its constructor.

    Attributes:
        kind: the name of the encoder, in states and for plugins.
        target_kind: what encoded targets are.
        fitted_on: the fingerprint of the iterator that the encoder was fitted on; None if it is
            unknown, or the encoder is not fitted.
    """

    kind: ClassVar[str]
    target_kind: TargetKind | None = None
    fitted_on: str | None = None
    #: What the encoder learned; None before it is fitted.
    _learned: Mapping[str, Any] | None = None
    #: Whether an encoded value has the shape of the value.
    _keeps_shape = False
    #: Functions that parse further types of the plain data of states, by the names of the types.
    _state_parsers: ClassVar[Mapping[str, Callable[[Any], Any]]] = {}

    # ------------------------------------------------------------------ learning and encoding

    def fit(
        self: _EncoderT, columns: ColumnArray | Iterable[Any], *, fitted_on: str | None = None
    ) -> _EncoderT:
        """Learn from a column, or from its blocks one after the other.

        What was learned before is replaced.

        Args:
            columns: an array or tensor of shape ``(n, ...)``, or a list of values; or the blocks
                of a column: a list of arrays, or a generator.
            fitted_on: the fingerprint of the iterator that the values come from.

        Raises:
            ConfigError: there are no values, or a value cannot be learned from. The encoder is
                unchanged.
        """
        if self._learner() is None:
            return self
        if hasattr(columns, "read_column"):
            raise ConfigError(
                f"an encoder is fitted on a column, not on {columns!r:.80}: "
                "use iterator.read_column(0)"
            )
        blocks: Iterable[Any] = columns if _are_blocks(columns) else [columns]
        fitting = Fitting(self)
        for block in blocks:
            fitting.add(as_column(block))
        fitting.finish(fitted_on)
        return self

    def transform(self, batch: Any) -> ColumnArray:
        """Encode a column of shape ``(n, ...)``.

        Raises:
            ModelNotTrainedError: the encoder is not fitted.
            EncodingError: a value is unknown or of another kind. The error names the value and its
                position.
        """
        self._check_fitted()
        return self._transform(as_column(batch))

    def inverse(self, batch: Any) -> ColumnArray:
        """Decode what :meth:`transform` returned.

        Raises:
            ModelNotTrainedError: the encoder is not fitted.
            ConfigError: the encoder has no inverse, or not for these values.
        """
        self._check_fitted()
        return self._inverse(as_column(batch))

    @property
    def is_fitted(self) -> bool:
        """Whether the encoder can transform."""
        return self._learned is not None

    @property
    def output_size(self) -> int | None:
        """How many numbers encode a value; None if that varies or is not known before fitting."""
        return None

    @property
    def output_names(self) -> tuple[str, ...] | None:
        """Names of the numbers that encode a value; None if they have no names."""
        return None

    @property
    def class_names(self) -> tuple[Any, ...] | None:
        """The encoded classes, in the order of their numbers."""
        return None

    def names_after(self, names: Sequence[str] | None) -> tuple[str, ...] | None:
        """Return :attr:`output_names` for an input whose numbers have names.

        Args:
            names: the names of the numbers of the input. They stay if the shape stays.
        """
        if self._keeps_shape and names is not None:
            return tuple(names)
        return self.output_names

    # ------------------------------------------------------------------ state and identity

    def state(self) -> dict[str, Any]:
        """Return the encoder as JSON data.

        Raises:
            ConfigError: a part of the encoder is not plain data.
        """
        return self._plain_state()

    def fingerprint(self) -> str:
        """Return a SHA-256 of what the encoder learned and of what it was fitted on."""
        return json_digest(self._plain_state())

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self) or not isinstance(other, Encoder):
            return NotImplemented
        if self is other:
            return True
        # Encoders are unequal if a part of one of them cannot be compared.
        with contextlib.suppress(ConfigError, MissingDependencyError):
            own_transformation = canonical_json(self._transformation())
            return own_transformation == canonical_json(other._transformation())
        return False

    __hash__ = None  # type: ignore[assignment]  # it changes when it is fitted

    def __repr__(self) -> str:
        options = [
            f"{name}={shorten(value)}" for name, value in self.config().items() if value is not None
        ]
        suffix = "" if self.is_fitted else ", not fitted"
        return f"<{type(self).__name__}({', '.join(options)}){suffix}>"

    # ------------------------------------------------------------------ for subclasses

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """Return the keyword arguments of the constructor: plain values and arrays."""

    @abstractmethod
    def _transform(self, column: ColumnArray) -> ColumnArray:
        """Encode a column of shape ``(n, ...)``; n may be 0. The encoder is fitted."""

    def _inverse(self, column: ColumnArray) -> ColumnArray:
        """Decode a column of shape ``(n, ...)``. The encoder is fitted."""
        raise ConfigError(f"{self!r} has no inverse")

    def _learner(self) -> Learner | None:
        """Return a new learner; None if the encoder needs no fit."""
        return None

    def _remember(self, learned: Mapping[str, Any]) -> None:
        """Check what a learner returned, or what a state contains, and use it from now on.

        Raises:
            ConfigError, LookupError, TypeError, ValueError: a learner of this class does not
                return such values.
        """
        self._learned = dict(learned)

    # ------------------------------------------------------------------ inside

    def _plain_state(self) -> dict[str, Any]:
        # A subclass may write its config in another form in state(), but not here.
        return {**self._transformation(), "fitted_on": self.fitted_on}

    def _transformation(self) -> dict[str, Any]:
        """Return all that decides how the encoder transforms, as plain data."""
        learned = None
        if self._learned is not None:
            learned = {name: to_plain(value) for name, value in self._learned.items()}
        return {"kind": self.kind, "config": self._plain_config(), "learned": learned}

    def _plain_config(self) -> dict[str, Any]:
        return {name: to_plain(value) for name, value in self.config().items()}

    def _check_fitted(self) -> None:
        if not self.is_fitted:
            raise ModelNotTrainedError(
                f"{self!r} is not fitted: call encoder.fit(column), "
                "or iterator.encode(…, fit_on=train)"
            )


def _are_blocks(columns: Any) -> bool:
    """Return whether ``fit`` was given the blocks of a column, and not the column itself."""
    if isinstance(columns, Iterator):
        return True
    if not isinstance(columns, (list, tuple)) or not columns:
        return False
    return all(isinstance(block, np.ndarray) and block.ndim > 0 for block in columns)


class Fitting:
    """Fits one encoder block by block; the encoder changes in :meth:`finish` only.

    Args:
        encoder: an encoder that learns.
    """

    _encoder: Encoder
    _learner: Learner
    #: How many values were added so far.
    _n_values: int

    def __init__(self, encoder: Encoder) -> None:
        learner = encoder._learner()
        if learner is None:
            raise ConfigError(f"{encoder!r} has nothing to learn, so it cannot be fitted")
        self._encoder = encoder
        self._learner = learner
        self._n_values = 0

    def add(self, block: ColumnArray) -> None:
        """Learn from the next values, shape ``(n, ...)``."""
        if len(block):
            self._learner.add(block, self._n_values)
            self._n_values += len(block)

    def finish(self, fitted_on: str | None = None) -> None:
        """Let the encoder remember what was learned.

        Args:
            fitted_on: the fingerprint of the iterator that the values come from.

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
    """Return the value of an argument that must be one of several texts.

    Raises:
        ConfigError: the value is not one of ``choices``.
    """
    if not isinstance(value, str) or value not in choices:
        known_choices = ", ".join(repr(choice) for choice in choices)
        suggestion = did_you_mean(value, choices)
        raise ConfigError(f"{name} must be one of {known_choices}, got {value!r:.80}{suggestion}")
    return value
