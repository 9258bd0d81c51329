"""Any transformer of scikit-learn is an encoder as it is; its state makes transformers of scikit-learn and nothing else."""

from __future__ import annotations

import copy
import json
import pickle
import sys
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.feature_extraction import DictVectorizer
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    KBinsDiscretizer,
    LabelBinarizer,
    LabelEncoder,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    SplineTransformer,
    StandardScaler,
)

from data_stack.dataset.encoders import ContinuousEncoder, FeatureEncoder, SklearnEncoder, as_encoder, encoder_from_state
from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.exception import ConfigError, ModelNotTrainedError

TABLE = np.random.default_rng(5).normal(size=(60, 3))
FLAT = TABLE[:, 0].round(1)
WORDS = np.array(["a b", "b c c", "a"] * 20, dtype=object)
LABELS = np.array(["x", "y", "z"] * 20, dtype=object)

TRANSFORMERS: list[tuple[Any, Any]] = [
    (StandardScaler(), TABLE),
    (StandardScaler(), FLAT),
    (MinMaxScaler(), TABLE),
    (RobustScaler(), FLAT),
    (PCA(2), TABLE),
    (PolynomialFeatures(), TABLE),
    (PowerTransformer(), TABLE),
    (QuantileTransformer(n_quantiles=10), TABLE),
    (KBinsDiscretizer(3, quantile_method="averaged_inverted_cdf"), TABLE),
    (SimpleImputer(), np.where(TABLE > 1, np.nan, TABLE)),
    (OneHotEncoder(), LABELS),  # sparse
    (OneHotEncoder(sparse_output=False), FLAT),
    (OneHotEncoder(handle_unknown="infrequent_if_exist", max_categories=2), LABELS),
    (OrdinalEncoder(), LABELS),
    (LabelEncoder(), LABELS),
    (LabelBinarizer(), LABELS),
    (Normalizer(), TABLE),
    (Binarizer(), TABLE),
    (CountVectorizer(token_pattern=r"\w"), WORDS),
    (TfidfVectorizer(token_pattern=r"\w"), WORDS),
    (HashingVectorizer(n_features=8), WORDS),
    (make_pipeline(SimpleImputer(), StandardScaler()), TABLE),
]
IDS = [f"{type(transformer).__name__}-{number}" for number, (transformer, _) in enumerate(TRANSFORMERS)]


def dense(result: Any) -> Any:
    """As an array."""
    return np.asarray(result.toarray() if hasattr(result, "toarray") else result)


def as_table(transformer: Any, column: Any) -> Any:
    """What one would give the transformer by hand."""
    takes_table = column.ndim > 1 or column is FLAT or isinstance(transformer, (OneHotEncoder, OrdinalEncoder))
    return column.reshape(len(column), -1) if takes_table else column


@pytest.mark.parametrize(("transformer", "column"), TRANSFORMERS, ids=IDS)
def test_it_transforms_as_by_itself(transformer: Any, column: Any) -> None:
    table = as_table(transformer, column)
    by_itself = dense(copy.deepcopy(transformer).fit(table).transform(table))

    encoder = as_encoder(copy.deepcopy(transformer)).fit(column)
    encoded = encoder.transform(column)

    assert isinstance(encoded, np.ndarray)
    assert encoded.dtype == by_itself.dtype
    assert np.array_equal(encoded, by_itself)
    assert encoder.transform(column[:0]).shape == (0, *encoded.shape[1:])


@pytest.mark.parametrize(("transformer", "column"), TRANSFORMERS, ids=IDS)
def test_its_state_rebuilds_it(transformer: Any, column: Any) -> None:
    encoder = SklearnEncoder(copy.deepcopy(transformer)).fit(column)

    rebuilt = encoder_from_state(json.loads(json.dumps(encoder.state())))

    assert rebuilt == encoder
    assert np.array_equal(rebuilt.transform(column), encoder.transform(column))
    assert rebuilt.output_names == encoder.output_names
    assert np.array_equal(pickle.loads(pickle.dumps(encoder)).transform(column), encoder.transform(column))


def test_a_transformer_that_is_not_fitted_says_so_and_one_that_is_does_not_need_to_be() -> None:
    unfitted = SklearnEncoder(StandardScaler())
    fitted = SklearnEncoder(StandardScaler().fit(TABLE))

    assert not unfitted.is_fitted
    with pytest.raises(ModelNotTrainedError, match="StandardScaler"):
        unfitted.transform(TABLE)
    assert fitted.transform(TABLE).shape == (60, 3)
    assert SklearnEncoder(Normalizer()).is_fitted
    assert SklearnEncoder(FunctionTransformer(np.log1p)).is_fitted


def test_fitting_changes_the_transformer_that_was_given() -> None:
    scaler = StandardScaler()

    SklearnEncoder(scaler).fit([TABLE[:10], TABLE[10:]])

    assert np.allclose(scaler.mean_, TABLE.mean(axis=0))
    assert SklearnEncoder(scaler).is_fitted


def test_it_has_the_inverse_of_its_transformer() -> None:
    flat = SklearnEncoder(StandardScaler()).fit(FLAT)
    labels = SklearnEncoder(LabelEncoder()).fit(LABELS)

    assert np.allclose(flat.inverse(flat.transform(FLAT)), FLAT)
    assert labels.inverse(labels.transform(LABELS)).tolist() == LABELS.tolist()
    with pytest.raises(ConfigError, match="no inverse_transform"):
        SklearnEncoder(Normalizer()).inverse(TABLE)


def test_what_scikit_learn_refuses_is_a_config_error() -> None:
    encoder = SklearnEncoder(OneHotEncoder()).fit(LABELS)

    with pytest.raises(ConfigError, match=r"OneHotEncoder.transform failed: Found unknown categories \['q'\]"):
        encoder.transform(np.array(["q"], dtype=object))
    with pytest.raises(ConfigError, match=r"StandardScaler.transform failed: X has 2 features"):
        SklearnEncoder(StandardScaler()).fit(TABLE).transform(TABLE[:, :2])


class Doubling:
    """A client's own, without any of scikit-learn's conventions."""

    def fit(self, table: Any) -> Doubling:
        self.factor = 2.0
        return self

    def transform(self, table: Any) -> Any:
        return table * self.factor


class Shifting(TransformerMixin, BaseEstimator):  # type: ignore[misc]  # without types
    """A client's own, in scikit-learn's manner."""

    def fit(self, table: Any, y: Any = None) -> Shifting:
        self.shift_ = table.min(axis=0)
        return self

    def transform(self, table: Any) -> Any:
        return table - self.shift_


@pytest.mark.parametrize("make", [Doubling, Shifting])
def test_whatever_has_fit_and_transform_is_an_encoder_without_a_state(make: Any) -> None:
    encoder = SklearnEncoder(make())
    assert not encoder.is_fitted

    encoder.fit(TABLE)

    assert encoder.transform(TABLE).shape == TABLE.shape
    assert encoder == encoder  # though it cannot be written
    assert encoder != SklearnEncoder(make()).fit(TABLE)
    assert np.array_equal(pickle.loads(pickle.dumps(encoder)).transform(TABLE), encoder.transform(TABLE))
    with pytest.raises(
        ConfigError, match=rf"{make.__name__} cannot be written as plain data: it is no transformer of scikit-learn"
    ):
        encoder.state()


def test_one_without_scikit_learn_s_conventions_can_be_said_to_be_fitted() -> None:
    assert SklearnEncoder(Doubling().fit(TABLE), fitted=True).transform(TABLE).tolist() == (2 * TABLE).tolist()


@pytest.mark.parametrize(
    ("transformer", "attribute"),
    [
        (FunctionTransformer(np.log1p), "FunctionTransformer cannot be written"),
        (SplineTransformer(), "SplineTransformer cannot be written"),
        (CountVectorizer(tokenizer=str.split, token_pattern=None), "tokenizer"),
        (QuantileTransformer(n_quantiles=9, random_state=np.random.RandomState(0)), "random_state"),
        (CountVectorizer(input="filename"), "input='filename'"),
        (make_pipeline(StandardScaler(), memory="/tmp/cache"), "memory='/tmp/cache'"),
        (make_pipeline(FunctionTransformer(np.log1p), "passthrough"), "steps"),
    ],
)
def test_an_attribute_that_is_no_plain_data_is_named(transformer: Any, attribute: str) -> None:
    encoder = SklearnEncoder(transformer)
    if isinstance(transformer, (SplineTransformer, QuantileTransformer)):
        encoder.fit(TABLE)

    with pytest.raises(ConfigError, match=attribute):
        encoder.state()


HOSTILE = [
    "os.system",
    "subprocess.Popen",
    "sklearn.os.Path",
    "sklearn.preprocessing._data.StandardScaler",
    "sklearn.preprocessing.StandardScaler.fit",
    "sklearn.preprocessing..StandardScaler",
    "sklearn.preprocessing.os",
    "sklearn.linear_model.LinearRegression",
    "sklearn.externals._arff.ArffDecoder",
    "sklearn.externals.array_api_compat.Nothing",
    "sklearn.datasets.Bunch",
    "sklearn.tests.test_base.MyEstimator",
    "sklearn.conftest.Nothing",
    "sklearn.StandardScaler",
    "sklearn.preprocessing.Nothing",
    "sklearn.nothing.Nothing",
    "data_stack.dataset.encoders.ContinuousEncoder",
    "sklearn.preprocessing.StandardScaler\n",
    "",
    None,
    ["sklearn.preprocessing.StandardScaler"],
]


@pytest.mark.parametrize("path", HOSTILE)
def test_a_state_leads_to_no_other_class_and_imports_nothing_else(path: Any) -> None:
    state = SklearnEncoder(StandardScaler()).fit(TABLE).state()
    state["config"]["transformer"]["sklearn"]["class"] = path
    before = set(sys.modules)

    with pytest.raises(ConfigError):
        encoder_from_state(state)

    assert all(name.startswith(("sklearn.", "scipy.", "joblib")) for name in set(sys.modules) - before)
    assert not {"sklearn.conftest", "sklearn.tests"} & (set(sys.modules) - before)


@pytest.mark.parametrize(
    "attributes",
    [
        [],
        {"__class__": 1},
        {"__init__": 1},
        {"transform": 1},
        {"a.b": 1},
        {"mean_": {"code": "x"}},
        {"memory": "/tmp"},
        {"dtype": {"scalar_type": "object"}},
        {"dtype": {"scalar_type": "os.system"}},
        {"dtype": {"dtype": "os.system"}},
        {"dtype": {"dtype": "O,f4"}},
        {"inner": {"sklearn": {"class": "os.system", "attributes": {}}}},
        {"inner": {"encoder": {}}},
    ],
)
def test_a_state_sets_no_other_attributes_than_data(attributes: Any) -> None:
    state = SklearnEncoder(StandardScaler()).fit(TABLE).state()
    state["config"]["transformer"]["sklearn"]["attributes"] = attributes

    with pytest.raises(ConfigError):
        encoder_from_state(state)


def test_a_state_that_lacks_an_attribute_fails_as_a_config_error() -> None:
    state = SklearnEncoder(StandardScaler()).fit(TABLE).state()
    del state["config"]["transformer"]["sklearn"]["attributes"]["scale_"]

    with pytest.raises((ConfigError, ModelNotTrainedError)):
        encoder_from_state(state).transform(TABLE)


@pytest.mark.parametrize("thing", [np.log, 3, None, "StandardScaler", StandardScaler, object()])
def test_what_has_no_fit_and_transform_is_no_encoder(thing: Any) -> None:
    with pytest.raises(ConfigError, match=r"no encoder|not the class"):
        as_encoder(thing)


def test_dicts_go_to_a_vectorizer_of_dicts() -> None:
    rows = np.fromiter([{"a": 1, "b": "x"}, {"b": "y"}], dtype=object)

    encoded = SklearnEncoder(DictVectorizer()).fit(rows).transform(rows)

    assert encoded.tolist() == [[1, 1, 0], [0, 0, 1]]


def test_one_transformer_given_for_two_features_learns_each_by_itself() -> None:
    scaler = StandardScaler()
    table = TABLE[:, :2] * [1, 100] + [0, 1000]

    encoded = FeatureEncoder({0: scaler, 1: scaler}).fit(table).transform(table)

    assert np.allclose(encoded.mean(axis=0), 0, atol=1e-5)
    assert np.allclose(encoded.std(axis=0), 1, atol=1e-5)


def test_one_transformer_to_be_fitted_on_two_columns_is_refused() -> None:
    scaler = StandardScaler()
    iterator = SequenceDatasetIterator([TABLE[:, 0], TABLE[:, 1] + 1000])

    with pytest.raises(ConfigError, match="one encoder is to be fitted on the columns 0 and 1"):
        iterator.encode({0: scaler, 1: scaler}, fit_on=iterator)


@pytest.mark.parametrize("transformer", [FunctionTransformer(), Normalizer(), Binarizer()])
def test_no_rows_have_the_shape_that_a_transformer_which_learns_nothing_gives_to_rows(transformer: Any) -> None:
    iterator = SequenceDatasetIterator([TABLE]).encode({0: transformer})

    column = iterator.read_column(0, [])

    assert column.shape == (0, 3)
    assert FeatureEncoder({(0, 2): transformer, 1: ContinuousEncoder("none")}).transform(TABLE).shape == (60, 3)


def test_a_union_of_transformers_is_fitted() -> None:
    union = FeatureUnion([("pca", PCA(1)), ("scaled", StandardScaler())])
    iterator = SequenceDatasetIterator([TABLE])

    (column,) = iterator.encode({0: union}, fit_on=iterator).read_batch(range(60))

    assert np.allclose(column, union.transform(TABLE))


def test_a_pipeline_that_begins_with_a_vectorizer_is_given_texts() -> None:
    pipeline = make_pipeline(TfidfVectorizer(token_pattern=r"\w"), TruncatedSVD(2))

    encoded = SklearnEncoder(pipeline).fit(WORDS).transform(WORDS)

    assert np.allclose(encoded, pipeline.transform(WORDS))


def test_a_state_keeps_which_way_a_matrix_lies_in_memory() -> None:
    encoder = SklearnEncoder(PCA(2)).fit(TABLE)

    rebuilt: Any = encoder_from_state(json.loads(json.dumps(encoder.state())))

    assert rebuilt.transformer.components_.flags.f_contiguous == encoder.transformer.components_.flags.f_contiguous
    assert np.array_equal(rebuilt.transform(TABLE), encoder.transform(TABLE))


def test_a_state_that_asks_for_more_names_than_there_is_memory_is_refused() -> None:
    state = SklearnEncoder(StandardScaler()).fit(TABLE).state()
    state["config"]["transformer"]["sklearn"]["attributes"]["n_features_in_"] = 10**12

    with pytest.raises(ConfigError, match="n_features_in_=1000000000000 is not what fitting gives"):
        encoder_from_state(state)


def test_an_encoder_whose_state_lacks_attributes_can_still_be_shown() -> None:
    state = SklearnEncoder(StandardScaler()).fit(TABLE).state()
    state["config"]["transformer"]["sklearn"]["attributes"] = {}

    encoder = encoder_from_state(state)

    assert "StandardScaler" in repr(encoder)
    with pytest.raises((ConfigError, ModelNotTrainedError)):
        encoder.transform(TABLE)
