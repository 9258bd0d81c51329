"""What every encoder promises."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pytest

from data_stack.dataset.encoders import Encoder, encoder_from_state
from data_stack.exception import ConfigError, ModelNotTrainedError
from data_stack.testing.iterators import assert_same
from data_stack.testing.processes import call_in_process

_FITTED_ON = "f" * 64


class EncoderContract:
    """Inherit it in a test class, and define two fixtures: ``encoder``, a new one, and ``column``, which it learns and encodes.

    The column has two values at least, and a value may be encoded alone.
    """

    @pytest.fixture
    def fitted(self, encoder: Encoder, column: Any) -> Encoder:
        """The encoder, fitted on the column."""
        return encoder.fit(column, fitted_on=_FITTED_ON)

    def test_each_row_is_encoded_as_in_a_batch(self, fitted: Encoder, column: Any) -> None:
        before = copy.deepcopy(column)

        batch = fitted.transform(column)

        assert len(batch) == len(column)
        assert_same_bits(np.concatenate([fitted.transform(column[i : i + 1]) for i in range(len(column))]), batch)
        nothing = fitted.transform(column[:0])
        assert (nothing.shape, nothing.dtype) == ((0, *batch.shape[1:]), batch.dtype)
        assert fitted.output_size in (None, np.size(batch[0]))
        assert fitted.output_names is None or len(fitted.output_names) == fitted.output_size
        assert_same(np.asarray(column), np.asarray(before))

    def test_a_state_is_json_and_rebuilds_the_encoder_bit_by_bit(self, fitted: Encoder, column: Any) -> None:
        rebuilt = rebuild(json.loads(json.dumps(fitted.state())), fitted)

        assert rebuilt == fitted
        assert (rebuilt.is_fitted, rebuilt.fitted_on) == (True, fitted.fitted_on)
        assert rebuilt.state() == fitted.state()
        assert rebuilt.fingerprint() == fitted.fingerprint()
        assert (rebuilt.output_names, rebuilt.class_names) == (fitted.output_names, fitted.class_names)
        assert_same_bits(rebuilt.transform(column), fitted.transform(column))

    def test_another_process_encodes_alike(self, fitted: Encoder, column: Any) -> None:
        again, encoded = call_in_process(_transform, fitted, column)

        assert again == fitted
        assert_same_bits(encoded, fitted.transform(column))

    def test_an_encoder_that_has_something_to_learn_says_that_it_is_not_fitted(self, encoder: Encoder, column: Any) -> None:
        if encoder.is_fitted:
            assert encoder.fit(()) is encoder  # nothing is read
            return
        for use in (encoder.transform, encoder.inverse):
            with pytest.raises(ModelNotTrainedError, match=r"is not fitted: call encoder.fit"):
                use(column)
        with pytest.raises(ConfigError, match="empty"):
            encoder.fit(column[:0])
        unfitted = rebuild(encoder.state(), encoder)
        assert (encoder.is_fitted, unfitted.is_fitted) == (False, False)
        assert unfitted == encoder
        assert "not fitted" in repr(encoder)

    def test_a_damaged_state_is_an_error_of_ours(self, fitted: Encoder) -> None:
        state = fitted.state()

        for part, wrong in (("config", {"no such option": 1}), ("config", []), ("learned", []), ("fitted_on", 7), ("more", 1)):
            with pytest.raises(ConfigError):
                rebuild({**state, part: wrong}, fitted)
        if state["learned"]:
            with pytest.raises(ConfigError):
                rebuild({**state, "learned": {}}, fitted)


def rebuild(state: Any, encoder: Encoder) -> Encoder:
    """The encoder of a state, of the class of ``encoder`` or a built-in one."""
    return encoder_from_state(state, {encoder.kind: type(encoder)})


def assert_same_bits(actual: Any, expected: Any) -> None:
    """Check that two columns are equal to the last bit."""
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    same = actual.tolist() == expected.tolist() if expected.dtype == object else actual.tobytes() == expected.tobytes()
    assert same, f"{actual!r} is not {expected!r}"


def _transform(encoder: Encoder, column: Any) -> Any:
    return encoder, encoder.transform(column)
