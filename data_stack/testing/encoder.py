"""The test suite of encoders."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pytest

from data_stack.dataset.encoders import Encoder, encoder_from_state
from data_stack.exception import ConfigError, ModelNotTrainedError
from data_stack.testing.comparing import assert_same, assert_same_bits
from data_stack.testing.processes import call_in_process

#: The fingerprint of the dataset that encoders are fitted on here.
_FITTED_ON = "f" * 64

#: Why a test is skipped whose promise is about learning.
_LEARNS_NOTHING = "the encoder learns nothing: it is fitted from the start"


class EncoderContract:
    """What every encoder promises.

    Inherit it in a test class, and define two fixtures: ``encoder``, a new one, and ``column``,
    which it learns and encodes. The column has two values at least, and a value may be encoded
    alone.
    """

    @pytest.fixture
    def fitted(self, encoder: Encoder, column: Any) -> Encoder:
        """Return the encoder, fitted on the column."""
        return encoder.fit(column, fitted_on=_FITTED_ON)

    # ------------------------------------------------------------------ encoding

    def test_each_row_is_encoded_as_in_a_batch(self, fitted: Encoder, column: Any) -> None:
        """A value is encoded to the same bits alone and in a batch."""
        batch = fitted.transform(column)

        rows = [fitted.transform(column[row : row + 1]) for row in range(len(column))]
        assert len(batch) == len(column)
        assert_same_bits(np.concatenate(rows), batch)

    def test_no_rows_are_encoded_as_an_empty_batch(self, fitted: Encoder, column: Any) -> None:
        """The encoded column of no values has the dtype, and the shape of a row, of any other."""
        batch = fitted.transform(column)

        empty_batch = fitted.transform(column[:0])

        assert empty_batch.shape == (0, *batch.shape[1:])
        assert empty_batch.dtype == batch.dtype

    def test_output_size_and_names_are_those_of_a_row(self, fitted: Encoder, column: Any) -> None:
        """``output_size`` is how many numbers a row has, and ``output_names`` names each."""
        row = fitted.transform(column)[0]

        assert fitted.output_size in (None, np.size(row))
        if fitted.output_names is not None:
            assert len(fitted.output_names) == fitted.output_size

    def test_encoding_leaves_the_column_as_it_is(self, fitted: Encoder, column: Any) -> None:
        """``transform`` writes nothing into its argument."""
        column_before = copy.deepcopy(column)

        fitted.transform(column)

        assert_same(np.asarray(column), np.asarray(column_before))

    # ------------------------------------------------------------------ state

    def test_a_state_is_json_and_rebuilds_the_encoder(self, fitted: Encoder, column: Any) -> None:
        """An encoder that is rebuilt of its state encodes to the same bits."""
        state = json.loads(json.dumps(fitted.state()))

        rebuilt = rebuild(state, fitted)

        assert rebuilt == fitted
        assert rebuilt.is_fitted == fitted.is_fitted
        assert rebuilt.fitted_on == fitted.fitted_on
        assert rebuilt.output_names == fitted.output_names
        assert rebuilt.class_names == fitted.class_names
        assert rebuilt.state() == fitted.state()
        assert rebuilt.fingerprint() == fitted.fingerprint()
        assert_same_bits(rebuilt.transform(column), fitted.transform(column))

    def test_another_process_encodes_alike(self, fitted: Encoder, column: Any) -> None:
        """A copy that was sent to another process is equal, and encodes to the same bits."""
        copy_of_encoder, encoded = call_in_process(_transform, fitted, column)

        assert copy_of_encoder == fitted
        assert_same_bits(encoded, fitted.transform(column))

    @pytest.mark.parametrize(
        ("part", "wrong_value"),
        [
            ("config", {"no such option": 1}),
            ("config", []),
            ("learned", []),
            ("fitted_on", 7),
            ("no such part", 1),
        ],
    )
    def test_a_damaged_state_is_a_config_error(
        self, fitted: Encoder, part: str, wrong_value: Any
    ) -> None:
        """A part of another type, or an unknown part, raises ConfigError."""
        damaged_state = {**fitted.state(), part: wrong_value}

        with pytest.raises(ConfigError):
            rebuild(damaged_state, fitted)

    def test_a_state_without_what_was_learned_is_refused(self, fitted: Encoder) -> None:
        """A state of a fitted encoder that lacks what was learned raises ConfigError."""
        state = fitted.state()
        if not state["learned"]:
            pytest.skip(_LEARNS_NOTHING)

        with pytest.raises(ConfigError):
            rebuild({**state, "learned": {}}, fitted)

    # ------------------------------------------------------------------ before fitting

    def test_an_encoder_that_is_not_fitted_says_so(self, encoder: Encoder, column: Any) -> None:
        """Before ``fit``, encoding raises ModelNotTrainedError, and the repr says "not fitted"."""
        if encoder.is_fitted:
            pytest.skip(_LEARNS_NOTHING)

        for use in (encoder.transform, encoder.inverse):
            with pytest.raises(ModelNotTrainedError, match=r"is not fitted: call encoder.fit"):
                use(column)
        assert "not fitted" in repr(encoder)

    def test_nothing_is_learned_from_no_values(self, encoder: Encoder, column: Any) -> None:
        """Fitting on an empty column raises ConfigError, if there is something to learn."""
        if encoder.is_fitted:
            assert encoder.fit(()) is encoder
            return

        with pytest.raises(ConfigError, match="empty"):
            encoder.fit(column[:0])
        assert not encoder.is_fitted

    def test_an_encoder_that_is_not_fitted_has_a_state(self, encoder: Encoder) -> None:
        """The state of an encoder before ``fit`` rebuilds an encoder that is not fitted."""
        if encoder.is_fitted:
            pytest.skip(_LEARNS_NOTHING)

        rebuilt = rebuild(encoder.state(), encoder)

        assert not rebuilt.is_fitted
        assert rebuilt == encoder


def rebuild(state: Any, encoder: Encoder) -> Encoder:
    """Return the encoder of a state, of the class of ``encoder`` or a built-in class."""
    return encoder_from_state(state, {encoder.kind: type(encoder)})


def _transform(encoder: Encoder, column: Any) -> Any:
    """Return the encoder and the encoded column; called in another process."""
    return encoder, encoder.transform(column)
