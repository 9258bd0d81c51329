"""Rows of mixed features as one matrix: whatever form rows have, it is what each encoder makes of its feature, side by side."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.decomposition import PCA

from data_stack.dataset.encoders import (
    CategoricalEncoder,
    ContinuousEncoder,
    EncodingError,
    FeatureEncoder,
    encoder_from_state,
)
from data_stack.exception import ConfigError

AGES = [31, 4, 59, 26, 53]
HEIGHTS = [1.8, 1.1, 1.7, 1.6, 1.75]
JOBS = ["baker", "child", "judge", "baker", "judge"]
NUMBERS = [3, 1, 4, 1, 3]
ROWS = [list(row) for row in zip(AGES, HEIGHTS, JOBS, NUMBERS, strict=True)]
NAMES = ["age", "height", "job", "number"]


def encoder_of(names: list[Any], **options: Any) -> FeatureEncoder:
    """One of all kinds."""
    age, height, job, number = names
    return FeatureEncoder(
        {
            number: CategoricalEncoder(unknown="zeros"),
            (age, height): ContinuousEncoder(),
            job: CategoricalEncoder(unknown="index"),
        },
        **options,
    )


def expected() -> Any:
    """What it makes of ``ROWS``, feature by feature."""
    columns = [
        CategoricalEncoder().fit(NUMBERS).transform(NUMBERS),
        ContinuousEncoder().fit(AGES).transform(AGES)[:, np.newaxis],
        ContinuousEncoder().fit(HEIGHTS).transform(HEIGHTS)[:, np.newaxis],
        CategoricalEncoder(unknown="index").fit(JOBS).transform(JOBS),
    ]
    return np.concatenate(columns, axis=1)


FORMS: dict[str, Any] = {
    "lists": ROWS,
    "tuples": [tuple(row) for row in ROWS],
    "object_table": np.array(ROWS, dtype=object),
    "column_of_lists": np.fromiter(ROWS, dtype=object, count=5),
}
NAMED_FORMS: dict[str, Any] = {
    "dicts": [dict(zip(NAMES, row, strict=True)) for row in ROWS],
    "records": np.array([tuple(row) for row in ROWS], dtype=[("age", int), ("height", float), ("job", "U5"), ("number", "i2")]),
    "data_frame": pd.DataFrame(ROWS, columns=NAMES),
}


@pytest.mark.parametrize("form", FORMS)
def test_rows_by_position_become_a_matrix(form: str) -> None:
    encoder = encoder_of([0, 1, 2, 3]).fit(FORMS[form])

    matrix = encoder.transform(FORMS[form])

    assert matrix.dtype == np.float32
    assert matrix.tolist() == expected().tolist()


@pytest.mark.parametrize("form", NAMED_FORMS)
def test_rows_by_name_become_a_matrix(form: str) -> None:
    encoder = encoder_of(NAMES).fit(NAMED_FORMS[form])

    assert encoder.transform(NAMED_FORMS[form]).tolist() == expected().tolist()
    assert encoder.transform(NAMED_FORMS["dicts"][3:4]).tolist() == expected()[3:4].tolist()
    by_names = encoder_of(NAMES, feature_names=NAMES).fit(ROWS)
    assert by_names.transform(ROWS).tolist() == encoder_of([-4, 1, -2, 3]).fit(ROWS).transform(ROWS).tolist()


def test_the_output_says_what_its_columns_are() -> None:
    encoder = encoder_of(NAMES).fit(NAMED_FORMS["dicts"])

    assert encoder.output_size == 9
    named = "number=1 number=3 number=4 age height job=baker job=child job=judge job=?"
    assert encoder.output_names == tuple(named.split())
    by_position = encoder_of([0, 1, 2, 3]).fit(ROWS)
    assert by_position.output_names is not None
    assert by_position.output_names[3] == "0"
    assert by_position.names_after(NAMES) == encoder.output_names
    assert encoder_of([0, 1, 2, 3], feature_names=NAMES).fit(ROWS).output_names == encoder.output_names


values = st.one_of(st.integers(-3, 9), st.floats(-9, 9), st.sampled_from([float("nan"), 2.5, 2**53 + 1, -0.0, 1e300]))


@given(
    learned=st.lists(st.lists(st.integers(-2, 7), min_size=3, max_size=3), min_size=1, max_size=6),
    asked=st.lists(st.lists(values, min_size=3, max_size=3), max_size=6),
    unknown=st.sampled_from(["zeros", "index"]),
    dtype=st.sampled_from(["float64", "int64", "uint8", "float32"]),
    with_fraction=st.booleans(),
)
def test_vectors_of_features_are_what_each_encoder_does_alone(
    learned: list[list[int]], asked: list[list[Any]], unknown: Any, dtype: str, with_fraction: bool
) -> None:
    table = np.array(learned, dtype=np.float64)
    if with_fraction:
        table[0, 1] = 2.5
    encoders = [CategoricalEncoder(unknown=unknown).fit(table[:, column]) for column in range(3)]
    encoder = FeatureEncoder(dict(enumerate(encoders)))
    numbers = np.array(asked, dtype=np.float64).reshape(-1, 3)
    if dtype != "float64":
        numbers = np.nan_to_num(numbers).clip(-100, 100).astype("int64").astype(dtype)

    matrix = encoder.transform(numbers)

    alone = [each.transform(numbers[:, column]) for column, each in enumerate(encoders)]
    assert matrix.tolist() == np.concatenate(alone, axis=1).tolist()
    assert encoder.transform([list(row) for row in numbers]).tolist() == matrix.tolist()


def test_unknown_values_are_named_with_feature_and_position() -> None:
    table = np.array([[0.0, 1.0], [1.0, 2.0]])
    encoder = FeatureEncoder({0: CategoricalEncoder(), 1: CategoricalEncoder(unknown="zeros")}).fit(table)

    for rows in (np.array([[0, 9], [7, 9.0]]), [[0, 9], [7, 9.0]]):
        with pytest.raises(
            EncodingError, match=r"^feature 0: at position 1, 7(.0)? is an unknown category: known are 0.0, 1.0"
        ) as caught:
            encoder.transform(rows)
        assert caught.value.position == 1
    assert encoder.transform(np.array([[0, 9.0]])).tolist() == [[1, 0, 0, 0]]


def test_features_may_be_nested() -> None:
    rows = [{"person": {"age": age, "job": job}, "number": number} for age, _, job, number in ROWS]
    inner = FeatureEncoder({"age": ContinuousEncoder(), "job": CategoricalEncoder()})

    encoder = FeatureEncoder({"person": inner, "number": ContinuousEncoder("none")}).fit(rows)

    assert encoder.transform(rows).shape == (5, 5)
    assert encoder.output_names == ("person.age", "person.job=baker", "person.job=child", "person.job=judge", "number")
    assert encoder_from_state(encoder.state()) == encoder


def test_several_features_get_an_encoder_each_or_one_of_scikit_learn_together() -> None:
    table = np.random.default_rng(0).normal(size=(30, 4))
    pca = PCA(2)

    encoder = FeatureEncoder({(0, 1): ContinuousEncoder(), (2, 3, 0)[:2]: pca}).fit(table)

    assert encoder.output_names == ("0", "1", "pca0", "pca1")
    assert list(encoder.encoders) == [0, 1, (2, 3)]
    assert np.allclose(encoder.transform(table)[:, 2:], pca.fit_transform(table[:, 2:]), atol=1e-6)


def test_each_feature_has_a_copy_of_its_encoder() -> None:
    given = ContinuousEncoder()

    encoder = FeatureEncoder(dict.fromkeys([0, 1], given)).fit([[1, 10], [3, 30]])

    assert encoder.transform([[1, 10], [3, 30]]).tolist() == [[-1, -1], [1, 1]]
    assert encoder.encoders[1].is_fitted
    assert not given.is_fitted


def test_an_encoder_that_is_fitted_already_stays_as_it_is() -> None:
    words = CategoricalEncoder("ordinal", categories=["x", "baker", "judge", "child"])
    fitted = ContinuousEncoder().fit([0, 2])

    encoder = FeatureEncoder({2: words, 0: fitted, 3: ContinuousEncoder()}).fit(ROWS)

    assert encoder.transform(ROWS)[:, :2].tolist() == [[1, 30], [3, 3], [2, 58], [1, 25], [2, 52]]
    assert FeatureEncoder({2: words, 0: fitted}).is_fitted


@pytest.mark.parametrize(
    "arguments",
    [
        ({},),
        ({0: ContinuousEncoder(), (1, 0): ContinuousEncoder()},),
        ({(1, 1): PCA()},),
        ({(): ContinuousEncoder()},),
        ({0.5: ContinuousEncoder()},),
        ({True: ContinuousEncoder()},),
        ({0: np.log},),
        ({0: ContinuousEncoder},),
        ({0: ContinuousEncoder()}, ["a", "a"]),
        ({0: ContinuousEncoder()}, "ab"),
    ],
)
def test_wrong_features_are_refused(arguments: Any) -> None:
    with pytest.raises(ConfigError):
        FeatureEncoder(*arguments)


def test_a_row_of_another_length_or_without_a_feature_is_named() -> None:
    encoder = encoder_of([0, 1, 2, 3]).fit(ROWS)
    named = encoder_of(NAMES).fit(NAMED_FORMS["dicts"])

    for encode, row in ((encoder, [1, 2]), (encoder, 7), (named, {"age": 1, "height": 1, "number": 1})):
        first = ROWS[0] if encode is encoder else NAMED_FORMS["dicts"][0]
        with pytest.raises(EncodingError, match="at position 1"):
            encode.transform([first, row])
    for encode, shape in ((encoder, (2, 2)), (named, (2, 4)), (encoder, 4)):
        with pytest.raises(ConfigError):
            encode.transform(np.zeros(shape))
