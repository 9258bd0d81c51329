"""A state that fitting could not have given is refused before scikit-learn believes it; in a process that may crash."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer
from sklearn.pipeline import FeatureUnion
from sklearn.preprocessing import StandardScaler

from data_stack.dataset.encoders import SklearnEncoder, encoder_from_state
from data_stack.exception import ConfigError, RequestLimitError

PROGRAM = r"""
import json, sys
import numpy as np
from sklearn.feature_extraction import DictVectorizer
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import *
from data_stack.dataset.encoders import SklearnEncoder, encoder_from_state
from data_stack.exception import DataStackError

words = np.array(["a b", "b c c", "a"] * 20, dtype=object)
labels = np.array(["x", "y", "z"] * 20, dtype=object)
numbers = np.array([[1.0], [2.0], [3.0]] * 20)
dicts = np.fromiter([{"a": 1, "b": "x"}, {"b": "y"}], dtype=object)
long_words = np.array(["a" * 60 + "!"] * 3, dtype=object)
far = 10**9


def words_of(transformer):
    return transformer["attributes"]["vocabulary_"]["dict"]


def forge(name, value):
    def change(transformer):
        assert name in transformer["attributes"], name
        transformer["attributes"][name] = value
    return change


def last_word_at(place):
    def change(transformer):
        words_of(transformer)[-1][1] = place
    return change


def array(values, dtype="<i8"):
    from data_stack.codecs.plain_data import to_plain
    return to_plain(np.array(values, dtype))


def inner(name, change):
    return lambda transformer: change(transformer["attributes"][name]["sklearn"])


def first_step(change):
    return lambda transformer: change(transformer["attributes"]["steps"][0]["tuple"][1]["sklearn"])


CASES = {
    "one-hot counts": (OneHotEncoder(), labels, forge("_n_features_outs", [1])),
    "one-hot counts far away": (OneHotEncoder(), labels, forge("_n_features_outs", [-far])),
    "one-hot counts, dense": (OneHotEncoder(sparse_output=False), labels, forge("_n_features_outs", [1])),
    "one-hot categories": (OneHotEncoder(), numbers, forge("categories_", [array([3.0, 1.0, 2.0], "<f8")])),
    "one-hot mapping": (
        OneHotEncoder(max_categories=2), labels, forge("_default_to_infrequent_mappings", [array([far, 1, 0])])
    ),
    "one-hot infrequent": (OneHotEncoder(max_categories=2), labels, forge("_infrequent_indices", [array([0, far])])),
    "one-hot drop": (OneHotEncoder(drop="first"), labels, forge("_drop_idx_after_grouping", None)),
    "ordinal mapping": (OrdinalEncoder(max_categories=2), labels, forge("_default_to_infrequent_mappings", [array([far, 1, 0])])),
    "binned": (KBinsDiscretizer(3), np.arange(60.0)[:, None], inner("_encoder", forge("_n_features_outs", [1]))),
    "bins": (KBinsDiscretizer(3), np.arange(60.0)[:, None], forge("n_bins_", array([2]))),
    "label classes": (LabelBinarizer(), np.array([1, 2, 3] * 5), forge("classes_", array([3, 1, 1]))),
    "words": (CountVectorizer(token_pattern=r"\w"), words, last_word_at(far)),
    "words before the first": (CountVectorizer(token_pattern=r"\w"), words, last_word_at(-far)),
    "words twice": (CountVectorizer(token_pattern=r"\w"), words, last_word_at(0)),
    "weighted words": (TfidfVectorizer(token_pattern=r"\w"), words, last_word_at(far)),
    "weights": (TfidfVectorizer(token_pattern=r"\w"), words, inner("_tfidf", forge("idf_", array([1.0], "<f8")))),
    "keys": (DictVectorizer(), dicts, last_word_at(far)),
    "combinations": (PolynomialFeatures(), numbers, forge("n_output_features_", 1000)),
    "room for combinations": (PolynomialFeatures(), numbers, forge("_n_out_full", 1 << 20)),
    "in a pipeline": (make_pipeline(CountVectorizer(token_pattern=r"\w")), words, first_step(last_word_at(far))),
    "pattern": (CountVectorizer(token_pattern=r"\w"), long_words, forge("token_pattern", "(a+)+$")),
    "shape": (StandardScaler(), numbers, forge("mean_", array([[1.0]], "<f8"))),
}
outcomes = {}
for name, (transformer, column, change) in CASES.items():
    state = json.loads(json.dumps(SklearnEncoder(transformer).fit(column).state()))
    change(state["config"]["transformer"]["sklearn"])
    try:
        encoder_from_state(state).transform(column)
        outcomes[name] = "taken"
    except DataStackError as error:
        outcomes[name] = type(error).__name__
    print(name, file=sys.stderr, flush=True)
print(json.dumps(outcomes))
"""


def test_what_fitting_could_not_have_given_is_refused_and_not_written_to_where_it_says() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=False
    )

    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout).values()) == {"ConfigError"}, done.stdout


def test_jobs_of_scikit_learn_are_not_kept() -> None:
    union = FeatureUnion([("scaled", StandardScaler())], n_jobs=2)

    state = SklearnEncoder(union).state()
    state["config"]["transformer"]["sklearn"]["attributes"]["n_jobs"] = 512
    rebuilt: Any = encoder_from_state(state)

    assert rebuilt.transformer.n_jobs is None
    assert union.n_jobs == 2


@pytest.mark.parametrize("pattern", [r"(?u)\b\w\w+\b", r"\w+", r"(?u)\b\w+\b", r"\S+", r"[a-z0-9]+", r"\w", None])
def test_patterns_that_take_no_longer_than_a_text_is_long_are_kept(pattern: str | None) -> None:
    analyzer = "char" if pattern is None else "word"
    vectorizer = CountVectorizer(analyzer=analyzer, token_pattern=pattern)
    texts = np.array(["ab cd", "cd 12"], dtype=object)

    encoder = SklearnEncoder(vectorizer).fit(texts)

    assert encoder_from_state(encoder.state()).transform(texts).tolist() == encoder.transform(texts).tolist()


@pytest.mark.parametrize("pattern", [r"(a+)+$", r"\w+x", r"(?:a|a)*b", r"\w*\w*\w*!", r"[a-z]+\b", r"a{1,99999}b", r"(\w)\1+"])
def test_other_patterns_are_refused_with_what_to_do(pattern: str) -> None:
    encoder = SklearnEncoder(CountVectorizer(token_pattern=pattern, vocabulary=["a"]))

    with pytest.raises(ConfigError, match="fits it anew"):
        encoder.state()


def test_a_sparse_result_that_would_not_fit_is_an_error_before_it_is_made_dense(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = SklearnEncoder(HashingVectorizer(n_features=1 << 20))
    texts = np.array(["a b"] * 16, dtype=object)
    monkeypatch.setenv("DATA_STACK_MAX_REQUEST_BYTES", "100_000_000")

    with pytest.raises(RequestLimitError, match="DATA_STACK_MAX_REQUEST_BYTES") as caught:
        encoder.transform(texts)

    assert caught.value.n_bytes == 16 * 8 << 20
    assert encoder.transform(texts[:2]).shape == (2, 1 << 20)
