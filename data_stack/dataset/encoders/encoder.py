"""What encodes a column: learns from one split, transforms whole batches, and is kept as plain data."""

from __future__ import annotations

import binascii
import copy
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

from data_stack.codecs.plain_data import canonical_json, from_plain, shorten, to_plain
from data_stack.dataset.encoders.columns import Blocks, Column, as_column, blocks_of
from data_stack.dataset.encoders.errors import EncodingError
from data_stack.dataset.encoders.sklearn_state import load_transformer
from data_stack.dataset.meta import TargetKind
from data_stack.exception import ConfigError, MissingDependencyError, ModelNotTrainedError

__all__ = ["BUILT_IN_KINDS", "Encoder", "Fitting", "Learner", "WholeColumn", "check_choice", "restore"]

_EncoderT = TypeVar("_EncoderT", bound="Encoder")

_MOST_IN_A_RANGE = 1 << 20

_STATE_KEYS = {"kind", "config", "learned", "fitted_on"}

BUILT_IN_KINDS: dict[str, type[Encoder]] = {}
"""The classes of this package by their kinds; :mod:`data_stack.dataset.encoders.stored` fills it in."""


class Learner(ABC):
    """Takes in a column block by block, and says in the end what an encoder is to remember of it."""

    @abstractmethod
    def add(self, block: Column, first: int) -> None:
        """Take in the next block, shape ``(n, ...)`` with n > 0; ``first`` is the position of its first value.

        Raises:
            EncodingError: a value cannot be learned from.
        """

    @abstractmethod
    def finish(self) -> dict[str, Any]:
        """What was found, as values that can be written as plain data (numbers, strings, arrays, lists, dicts)."""


class WholeColumn(Learner):
    """For what cannot be learned in blocks: keeps the column until the end, and hands it to a function.

    Args:
        learn: of the column; gives what is to be remembered.
    """

    def __init__(self, learn: Callable[[Column], dict[str, Any]]) -> None:
        self._learn = learn
        self._blocks: list[Column] = []

    def add(self, block: Column, first: int) -> None:
        """Keep it."""
        if self._blocks and block.shape[1:] != self._blocks[0].shape[1:]:
            raise EncodingError(f"values have the shape {block.shape[1:]}, those before {self._blocks[0].shape[1:]}", first)
        self._blocks.append(block)

    def finish(self) -> dict[str, Any]:
        """What the function says of the whole."""
        dtypes = {block.dtype for block in self._blocks}
        blocks = self._blocks if len(dtypes) == 1 or object not in dtypes else [b.astype(object) for b in self._blocks]
        return self._learn(np.concatenate(blocks) if len(blocks) > 1 else blocks[0])


class Encoder(ABC):
    """Columns as other columns, by what was learned from one of them.

    ``fit`` learns, once, from one split; ``transform`` then is a pure function of a column of shape ``(n, ...)``, the same in
    every process, and for each value on its own: a row is a batch of 1. What was learned is plain data (:meth:`state`) that
    :func:`~data_stack.dataset.encoders.save_encoder` keeps in a store. Encoders are equal if they transform alike.

    A subclass sets :attr:`kind` and defines :meth:`config` and :meth:`_transform`; if it can, :meth:`_inverse`,
    :attr:`output_size` and :attr:`output_names`. Its constructor takes what ``config`` gives as keyword arguments. One that
    learns defines :meth:`_learner` and :meth:`_remember`; one that does not ends its constructor in ``self._remember({})``.

    Attributes:
        kind: the encoder's name, in states and for plugins.
        fitted_on: fingerprint of the iterator that it was fitted on; None if unknown, or not fitted.
    """

    kind: ClassVar[str]
    is_per_feature: ClassVar[bool] = True
    """Whether several features that are given one encoder get one like it each, or are encoded together."""

    name_separator: ClassVar[str] = "."
    """Between the name of a feature and the names of what becomes of it."""

    fitted_on: str | None = None
    _learned: Mapping[str, Any] | None = None

    # ------------------------------------------------------------------ what it does

    def fit(self: _EncoderT, columns: Blocks, *, fitted_on: str | None = None) -> _EncoderT:
        """Learn from a column, or from its blocks one after the other; what was learned before is forgotten.

        An encoder that has nothing to learn reads nothing.

        Args:
            columns: an array or tensor of shape ``(n, ...)``, or a list of values; or the blocks of one: a list of arrays,
                a generator. Blocks are held one at a time, unless the class says that it needs the whole.
            fitted_on: fingerprint of the iterator that they come from.

        Raises:
            ConfigError: there is no value to learn from, or one that cannot be learned from; the encoder is as before.
        """
        if self._learner() is None:
            return self
        fitting = Fitting(self)
        for block in blocks_of(columns):
            fitting.add(block)
        fitting.finish(fitted_on)
        return self

    def transform(self, batch: Any) -> Column:
        """What becomes of a column of shape ``(n, ...)``.

        Raises:
            ModelNotTrainedError: it is not fitted.
            EncodingError: a value is unknown, or of another kind; it names the value and its position.
        """
        if not self.is_fitted:
            raise self._not_fitted()
        return self._transform(as_column(batch))

    def inverse(self, batch: Any) -> Column:
        """The values that :meth:`transform` makes ``batch`` of, as far as it keeps what they were.

        Raises:
            ModelNotTrainedError: it is not fitted.
            ConfigError: the encoder has no inverse, or none for these values.
        """
        if not self.is_fitted:
            raise self._not_fitted()
        return self._inverse(as_column(batch))

    @property
    def is_fitted(self) -> bool:
        """Whether it can transform."""
        return self._learned is not None

    @property
    def unknown(self) -> str:
        """What becomes of values that it does not know: ``"error"``, ``"zeros"`` or ``"index"`` (one more position)."""
        return "error"

    @property
    def output_size(self) -> int | None:
        """How many numbers become of a value; None if that depends on it, or is not known before fitting."""
        return None

    @property
    def output_names(self) -> tuple[str, ...] | None:
        """Names of these numbers; None if they have none."""
        return None

    @property
    def target_kind(self) -> TargetKind | None:
        """What targets are when they come out of it."""
        return None

    @property
    def class_names(self) -> tuple[Any, ...] | None:
        """The classes that come out of it, in the order of their numbers or of the positions of the one."""
        return None

    def names_after(self, names: Sequence[str] | None) -> tuple[str, ...] | None:
        """:attr:`output_names`, where the numbers of its input are called ``names``."""
        return self.output_names

    # ------------------------------------------------------------------ what it is

    def state(self) -> dict[str, Any]:
        """All there is to it, as JSON data.

        Raises:
            ConfigError: something in it is no plain data.
        """
        return {**self._without_origin(), "fitted_on": self.fitted_on}

    @classmethod
    def from_state(cls: type[_EncoderT], state: Any, *, kinds: Mapping[str, type[Encoder]] | None = None) -> _EncoderT:
        """The encoder that gave ``state``.

        Args:
            state: what may come from a file of anyone's.
            kinds: classes of the encoders inside of it, by kind, besides those of data_stack.

        Raises:
            ConfigError: it is no state of an encoder of this class.
        """
        encoder = restore(state, {**BUILT_IN_KINDS, **(kinds or {}), cls.kind: cls})
        if not isinstance(encoder, cls):
            raise ConfigError(f"this is the state of a {encoder.kind!r} encoder, not of a {cls.kind!r} one")
        return encoder

    def fingerprint(self) -> str:
        """SHA-256 of what it learned and of what it was fitted on: 64 hex digits."""
        content = {**self._without_origin(), "fitted_on": self.fitted_on}
        return hashlib.sha256(canonical_json(content).encode("ascii")).hexdigest()

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self) or not isinstance(other, Encoder):
            return NotImplemented
        if self is other:
            return True
        try:
            return canonical_json(self._without_origin()) == canonical_json(other._without_origin())
        except (ConfigError, MissingDependencyError):  # something in one of them cannot be compared
            return False

    __hash__ = None  # type: ignore[assignment]  # it changes when it is fitted

    def __repr__(self) -> str:
        options = ", ".join(f"{name}={_shorten(value)}" for name, value in self.config().items() if value is not None)
        return f"<{type(self).__name__}({options}){'' if self.is_fitted else ', not fitted'}>"

    # ------------------------------------------------------------------ for subclasses

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """The keyword arguments that it was made with: plain values, arrays, encoders."""

    @abstractmethod
    def _transform(self, column: Column) -> Column:
        """:meth:`transform`, when fitted; shape ``(n, ...)``, n may be 0."""

    def _inverse(self, column: Column) -> Column:
        """:meth:`inverse`, when fitted."""
        raise ConfigError(f"{self!r} has no inverse: it does not keep what the values were")

    def _learner(self) -> Learner | None:
        """A new learner; None if there is nothing to learn."""
        return None

    def _remember(self, learned: Mapping[str, Any]) -> None:
        """Check what a learner found, or a state holds, and transform by it from now on.

        Raises:
            ConfigError, LookupError, TypeError, ValueError: it is not what a learner of this class finds.
        """
        self._learned = dict(learned)

    # ------------------------------------------------------------------ inside

    def _without_origin(self) -> dict[str, Any]:
        learned = None if self._learned is None else {name: _plain(value) for name, value in self._learned.items()}
        config = {name: _plain(value) for name, value in self.config().items()}
        return {"kind": self.kind, "config": config, "learned": learned}

    def _not_fitted(self) -> ModelNotTrainedError:
        return ModelNotTrainedError(
            f"{self!r} is not fitted: call encoder.fit(column), or iterator.encode(…, fit_on=the training split)"
        )

    @property
    def _fits(self) -> object:
        """The object that changes when this is fitted: itself, or what it is only the outside of."""
        return self

    def _like_this(self: _EncoderT) -> _EncoderT:
        """One of its own that is the same now."""
        return copy.deepcopy(self)


class Fitting:
    """One encoder being fitted, a block at a time; it changes only when all was taken in.

    Args:
        encoder: one that learns.
    """

    def __init__(self, encoder: Encoder) -> None:
        learner = encoder._learner()
        if learner is None:
            raise ConfigError(f"{encoder!r} has nothing to learn")
        self._encoder, self._learner = encoder, learner
        self._n_values = 0

    def add(self, block: Column) -> None:
        """Take in the next values, shape ``(n, ...)``."""
        if len(block):
            self._learner.add(block, self._n_values)
            self._n_values += len(block)

    def finish(self, fitted_on: str | None = None) -> None:
        """Let the encoder remember.

        Raises:
            ConfigError: there was no value.
        """
        if self._n_values == 0:
            raise ConfigError(f"{self._encoder!r} cannot be fitted on no values: the column is empty")
        self._encoder._remember(self._learner.finish())
        self._encoder.fitted_on = fitted_on


def _plain(value: Any) -> Any:
    return to_plain(value, lambda v: {"encoder": v.state()} if isinstance(v, Encoder) else None)


def restore(state: Any, kinds: Mapping[str, type[Encoder]]) -> Encoder:
    """The encoder that gave ``state``, of one of the classes ``kinds``.

    Raises:
        ConfigError: it is no state, or of another kind.
    """
    if not isinstance(state, dict) or state.keys() != _STATE_KEYS:
        raise ConfigError(f"no state of an encoder: it is an object of {', '.join(sorted(_STATE_KEYS))}, not {shorten(state)}")
    kind, config, learned, fitted_on = state["kind"], state["config"], state["learned"], state["fitted_on"]
    if not isinstance(kind, str) or kind not in kinds:
        raise ConfigError(
            f"there is no kind of encoder {shorten(kind)}; known are: {', '.join(sorted(kinds))}. "
            "One of a plugin is rebuilt by data_stack.repository.encoders"
        )
    if not isinstance(config, dict) or not (learned is None or isinstance(learned, dict)):
        raise ConfigError(f"damaged state of a {kind!r} encoder: its config and what it learned must be objects")
    if not (fitted_on is None or isinstance(fitted_on, str)):
        raise ConfigError(f"damaged state of a {kind!r} encoder: fitted_on is a fingerprint, not {shorten(fitted_on)}")
    encoder_class = kinds[kind]
    special = {"encoder": lambda state: restore(state, kinds), "range": _short_range, "sklearn": load_transformer}
    try:
        encoder = encoder_class(**{name: from_plain(value, special) for name, value in config.items()})
        if learned is not None:
            encoder._remember({name: from_plain(value, special) for name, value in learned.items()})
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError, binascii.Error) as error:
        raise ConfigError(f"damaged state of a {kind!r} encoder: {error!s:.300}") from error
    encoder.fitted_on = fitted_on
    return encoder


def _short_range(ends: Any) -> range:
    """A range in a state: a few bytes that anyone may have written, and that encoders make lists of.

    Raises:
        ConfigError: it is none, or longer than a million.
    """
    made: range = from_plain({"range": ends})
    if len(made) > _MOST_IN_A_RANGE:
        raise ConfigError(f"an encoder is made of no range of {len(made):,} values")
    return made


def check_choice(name: str, value: Any, choices: Sequence[str]) -> Any:
    """``value`` if it is one of ``choices``.

    Raises:
        ConfigError: it is not.
    """
    if not isinstance(value, str) or value not in choices:
        raise ConfigError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r:.80}")
    return value


def _shorten(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"array of shape {value.shape}"
    text = repr(value)
    return text if len(text) <= 40 else f"{type(value).__name__} of {len(value)}" if hasattr(value, "__len__") else text[:40]
