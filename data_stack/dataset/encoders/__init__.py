"""Encoders of columns, fitted on one split and the same in every process.

::

    from data_stack.dataset.encoders import CategoricalEncoder, ContinuousEncoder

    encoders = {"age": ContinuousEncoder(), "country": CategoricalEncoder(unknown="index")}
    train = train.encode(encoders, fit_on=train)
    test = test.encode(encoders)                    # shares what was learned
"""

from __future__ import annotations

from data_stack.dataset.encoders.categorical import CategoricalEncoder, OneHotEncoder
from data_stack.dataset.encoders.class_mapping import ClassMapping
from data_stack.dataset.encoders.columns import Column
from data_stack.dataset.encoders.continuous import ContinuousEncoder
from data_stack.dataset.encoders.encoder import Encoder, Learner, WholeColumn, encoder_from_state
from data_stack.dataset.encoders.errors import EncodingError
from data_stack.dataset.encoders.images import ImageEncoder
from data_stack.dataset.encoders.stored import load_encoder, save_encoder
from data_stack.dataset.encoders.transformer import EncoderLike, SklearnEncoder, as_encoder

__all__ = [
    "CategoricalEncoder",
    "ClassMapping",
    "Column",
    "ContinuousEncoder",
    "Encoder",
    "EncoderLike",
    "EncodingError",
    "ImageEncoder",
    "Learner",
    "OneHotEncoder",
    "SklearnEncoder",
    "WholeColumn",
    "as_encoder",
    "encoder_from_state",
    "load_encoder",
    "save_encoder",
]
