"""Encoders of columns, fitted on one split and the same in every process.

::

    from data_stack.dataset.encoders import CategoricalEncoder, ContinuousEncoder

    encoders = {"age": ContinuousEncoder(), "country": CategoricalEncoder(unknown="index")}
    train = train.encode(encoders, fit_on=train)
    test = test.encode(encoders)                    # shares what was learned
"""

from __future__ import annotations

import importlib
import os
import pkgutil

from data_stack.dataset.encoders.categorical import CategoricalEncoder, ClassMapping, OneHotEncoder
from data_stack.dataset.encoders.encoder import (
    Column,
    Encoder,
    Learner,
    WholeColumn,
    encoder_from_state,
    load_encoder,
    save_encoder,
)
from data_stack.dataset.encoders.errors import EncodingError
from data_stack.dataset.encoders.scaling import ContinuousEncoder, ImageEncoder
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

for _module in pkgutil.iter_modules([os.path.dirname(__file__)]):  # they register their encoders
    importlib.import_module(f"{__package__}.{_module.name}")
