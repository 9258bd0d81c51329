"""The encoders of data_stack by their kinds, and any encoder from its state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from data_stack.dataset.encoders.categorical import CategoricalEncoder
from data_stack.dataset.encoders.class_mapping import ClassMapping
from data_stack.dataset.encoders.continuous import ContinuousEncoder
from data_stack.dataset.encoders.encoder import BUILT_IN_KINDS, Encoder, restored
from data_stack.dataset.encoders.features import FeatureEncoder
from data_stack.dataset.encoders.images import ImageEncoder
from data_stack.dataset.encoders.one_hot import OneHotEncoder
from data_stack.dataset.encoders.text_labels import TextLabelEncoder
from data_stack.dataset.encoders.transformer import SklearnEncoder

__all__ = ["encoder_from_state"]

_BUILT_IN: tuple[type[Encoder], ...] = (
    CategoricalEncoder,
    ClassMapping,
    ContinuousEncoder,
    FeatureEncoder,
    ImageEncoder,
    OneHotEncoder,
    SklearnEncoder,
    TextLabelEncoder,
)
BUILT_IN_KINDS.update({encoder_class.kind: encoder_class for encoder_class in _BUILT_IN})


def encoder_from_state(state: Any, kinds: Mapping[str, type[Encoder]] | None = None) -> Encoder:
    """The encoder that gave ``state``, of whichever kind.

    Args:
        state: what ``encoder.state()`` gave; it may come from a file of anyone's, and can make nothing but encoders.
        kinds: further classes by kind; those of plugins are known to :func:`data_stack.repository.encoders.encoder_from_state`.

    Raises:
        ConfigError: it is no state, or of another kind.
        MissingDependencyError: it is of scikit-learn, which is not installed.
    """
    return restored(state, {**BUILT_IN_KINDS, **(kinds or {})})
