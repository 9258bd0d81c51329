"""Which shape the values of a column have in common."""

from __future__ import annotations

import pytest

from data_stack.show.column_report import Shape, common_shape


@pytest.mark.parametrize(
    ("shapes", "common"),
    [
        ({(3, 4)}, (3, 4)),
        ({(3, 4), (5, 4)}, (None, 4)),
        ({()}, ()),
        ({(3,), (3, 4)}, None),
    ],
)
def test_varying_dimensions_of_a_common_shape_are_none(
    shapes: set[tuple[int, ...]], common: Shape
) -> None:
    assert common_shape(shapes) == common
