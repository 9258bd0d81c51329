"""Encoders of columns, fitted on one split and the same in every process.

::

    from data_stack.dataset.encoders import CategoricalEncoder, ContinuousEncoder, FeatureEncoder

    encoder = FeatureEncoder({"age": ContinuousEncoder(), "country": CategoricalEncoder(unknown="index")})
    train = train.encode(encoder, fit_on=train)
    test = test.encode(encoder)                     # shares what was learned
"""

from __future__ import annotations

from data_stack.dataset.encoders.categorical import CategoricalEncoder, OneHotEncoder, TextLabelEncoder
from data_stack.dataset.encoders.class_mapping import ClassMapping
from data_stack.dataset.encoders.columns import Column
from data_stack.dataset.encoders.continuous import ContinuousEncoder
from data_stack.dataset.encoders.encoder import Encoder, Learner, WholeColumn
from data_stack.dataset.encoders.errors import EncodingError
from data_stack.dataset.encoders.features import FeatureEncoder
from data_stack.dataset.encoders.images import ImageEncoder
from data_stack.dataset.encoders.stored import encoder_from_state, load_encoder, save_encoder
from data_stack.dataset.encoders.transformer import EncoderLike, SklearnEncoder, as_encoder

__all__ = [
    "CategoricalEncoder",
    "ClassMapping",
    "Column",
    "ContinuousEncoder",
    "Encoder",
    "EncoderLike",
    "EncodingError",
    "FeatureEncoder",
    "ImageEncoder",
    "Learner",
    "OneHotEncoder",
    "SklearnEncoder",
    "TextLabelEncoder",
    "WholeColumn",
    "as_encoder",
    "encoder_from_state",
    "load_encoder",
    "save_encoder",
]
