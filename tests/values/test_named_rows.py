"""Named tuples of rows."""

from __future__ import annotations

import pickle

from data_stack.values.named_rows import row_type


def test_equal_names_and_fields_share_a_class_whose_rows_pickle() -> None:
    one = row_type("s", ("id", "text", "class"))

    row = one._make([5, None, None])

    assert one is row_type("s", ("id", "text", "class"))
    assert row.id == 5
    assert type(pickle.loads(pickle.dumps(row))) is one
    assert pickle.loads(pickle.dumps(row)) == row == (5, None, None)
