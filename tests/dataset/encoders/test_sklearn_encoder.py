"""Any transformer of scikit-learn is an encoder as it is; skops keeps its state."""

from __future__ import annotations

import base64
import copy
import json
import os
import pickle
from typing import Any

import numpy as np
import pytest
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.feature_extraction.text import HashingVectorizer, TfidfVectorizer
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    LabelEncoder,
    Normalizer,
    OneHotEncoder,
    StandardScaler,
)

from data_stack.dataset.encoders import SklearnEncoder, as_encoder, encoder_from_state
from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.exception import ConfigError, ModelNotTrainedError, RequestLimitError

TABLE = np.random.default_rng(5).normal(size=(60, 3))
FLAT = TABLE[:, 0].round(1)
WORDS = np.array(["a b", "b c c", "a"] * 20, dtype=object)
LABELS = np.array(["x", "y", "z"] * 20, dtype=object)

TRANSFORMERS: list[tuple[Any, Any]] = [
    (StandardScaler(), TABLE),
    (OneHotEncoder(), LABELS),  # sparse
    (LabelEncoder(), LABELS),
    (Normalizer(), TABLE),
    (TfidfVectorizer(token_pattern=r"\w"), WORDS),
    (make_pipeline(TfidfVectorizer(token_pattern=r"\w"), TruncatedSVD(2, random_state=0)), WORDS),
    (FeatureUnion([("pca", PCA(1)), ("scaled", StandardScaler())]), TABLE),
    (KBinsDiscretizer(3, strategy="uniform", subsample=None), TABLE),
    (FunctionTransformer(np.log1p), np.abs(TABLE)),
]
IDS = [
    f"{type(transformer).__name__}-{number}" for number, (transformer, _) in enumerate(TRANSFORMERS)
]


@pytest.mark.parametrize(("transformer", "column"), TRANSFORMERS, ids=IDS)
def test_it_transforms_as_by_itself_and_its_state_rebuilds_it(
    transformer: Any, column: Any
) -> None:
    table = column[:, np.newaxis] if isinstance(transformer, OneHotEncoder) else column
    by_itself = copy.deepcopy(transformer).fit(table).transform(table)
    by_itself = by_itself.toarray() if hasattr(by_itself, "toarray") else by_itself

    encoder, unfitted = (
        as_encoder(copy.deepcopy(transformer)).fit(column),
        as_encoder(copy.deepcopy(transformer)),
    )
    encoded = encoder.transform(column)
    rebuilt = encoder_from_state(json.loads(json.dumps(encoder.state())))

    assert isinstance(encoded, np.ndarray)
    assert encoded.dtype == by_itself.dtype
    assert np.array_equal(encoded, by_itself)
    assert encoder.transform(column[:0]).shape == (0, *encoded.shape[1:])
    assert rebuilt == encoder
    assert rebuilt.fingerprint() == encoder.fingerprint()
    assert np.array_equal(rebuilt.transform(column), encoded)
    assert rebuilt != unfitted or unfitted.is_fitted


def test_an_unfitted_transformer_says_so() -> None:
    unfitted = SklearnEncoder(StandardScaler())
    fitted = SklearnEncoder(StandardScaler().fit(TABLE))

    assert not unfitted.is_fitted
    with pytest.raises(ModelNotTrainedError, match="StandardScaler"):
        unfitted.transform(TABLE)
    assert fitted.transform(TABLE).shape == (60, 3)
    assert SklearnEncoder(Normalizer()).is_fitted


def test_it_has_the_inverse_of_its_transformer() -> None:
    flat = SklearnEncoder(StandardScaler()).fit(FLAT)
    labels = SklearnEncoder(LabelEncoder()).fit(LABELS)

    assert np.allclose(flat.inverse(flat.transform(FLAT)), FLAT)
    assert labels.inverse(labels.transform(LABELS)).tolist() == LABELS.tolist()
    with pytest.raises(ConfigError, match="no inverse_transform"):
        SklearnEncoder(Normalizer()).inverse(TABLE)


class Doubling:
    """A client's own, without any of scikit-learn's conventions."""

    def fit(self, table: Any) -> Doubling:
        self.factor = 2.0
        return self

    def transform(self, table: Any) -> Any:
        return table * self.factor


def test_any_object_with_fit_and_transform_is_an_encoder() -> None:
    encoder = SklearnEncoder(Doubling())
    assert not encoder.is_fitted

    encoder.fit(TABLE)

    assert encoder.transform(TABLE).shape == TABLE.shape
    assert encoder == encoder  # though it cannot be written
    assert encoder != SklearnEncoder(Doubling()).fit(TABLE)
    assert np.array_equal(
        pickle.loads(pickle.dumps(encoder)).transform(TABLE), encoder.transform(TABLE)
    )
    with pytest.raises(ConfigError, match="cannot be written as plain data"):
        encoder.state()


def test_a_damaged_state_is_refused_before_a_function_is_called() -> None:
    import skops.io  # takes seconds, which each process that collects this file would pay

    state = SklearnEncoder(StandardScaler()).state()
    forged = [
        base64.b64encode(skops.io.dumps(FunctionTransformer(called))).decode()
        for called in (os.system, eval)
    ]

    for text in (
        *forged,
        {"class": "StandardScaler"},
        None,
        7,
        "",
        "no base 64",
        base64.b64encode(b"no archive").decode(),
    ):
        state["config"]["transformer"]["sklearn"] = text
        with pytest.raises(ConfigError):
            encoder_from_state(state)


def test_no_rows_have_the_shape_of_transformed_rows() -> None:
    iterator = SequenceDatasetIterator([TABLE]).encode({0: Normalizer()})

    column = iterator.read_column(0, [])

    assert column.shape == (0, 3)


def test_a_huge_sparse_result_is_refused_before_it_is_dense(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts = np.array(["a b"] * 16, dtype=object)
    encoder = SklearnEncoder(HashingVectorizer(n_features=1 << 20)).fit(texts[:1])
    monkeypatch.setenv("DATA_STACK_MAX_REQUEST_BYTES", "100_000_000")

    with pytest.raises(RequestLimitError, match="DATA_STACK_MAX_REQUEST_BYTES") as caught:
        encoder.transform(texts)

    assert caught.value.n_bytes == 16 * 8 << 20
    assert encoder.transform(texts[:2]).shape == (2, 1 << 20)
