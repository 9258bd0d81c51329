"""Converts columns to declared types, as the package ``datasets`` casts them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from data_stack.dataset.encoders import Encoder
from data_stack.dataset.encoders.errors import EncodingError
from data_stack.exception import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

#: Texts of infinite numbers, as Arrow reads them.
_INFINITE: Final = r"(?i)^\s*[+-]?inf(inity)?\s*$"


class CastEncoder(Encoder):
    """Casts values of one type of Arrow to another, as far as they do not change.

    Numbers, times and bools become text, text is parsed, a number other than 0 is true. A value
    that the declared type cannot hold is an error. So are two casts that the package ``datasets``
    makes in silence: of a finite number to infinity, and of a time to the day that it falls on.

    Args:
        stored: the type of the files, as
            :func:`~data_stack.formats.parquet.types.describe_type` describes it.
        feature: the declared feature, in the form of files.
        nullable: whether the column has nulls anywhere; then its values are objects.
    """

    kind = "huggingface_cast"

    _stored: Any
    _feature: dict[str, Any]
    _nullable: bool

    def __init__(self, stored: Any, feature: Mapping[str, Any], nullable: bool) -> None:
        self._stored = stored
        self._feature = dict(feature)
        self._nullable = bool(nullable)
        self._learned = {}  # nothing is learned, so the encoder is fitted

    def config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {"stored": self._stored, "feature": self._feature, "nullable": self._nullable}

    def _transform(self, column: npt.NDArray[Any]) -> npt.NDArray[Any]:
        import pyarrow as pa

        from data_stack.formats.arrow_ipc.feature_types import arrow_type_of
        from data_stack.formats.parquet import infer_schema
        from data_stack.formats.parquet.types import type_described

        declared_type = arrow_type_of(self._feature)
        if declared_type is None:
            raise ConfigError(f"no type of Arrow for the feature {self._feature!s:.200}")
        stored_column = pa.field("stored", type_described(self._stored))
        declared_column = pa.field("declared", declared_type)
        schema = infer_schema(pa.schema([stored_column, declared_column]))
        stored_field = schema["stored"]
        declared_field = schema["declared"]

        cells = stored_field.cells.encode_column(stored_field, column)
        try:
            cast = cast_cells(cells, declared_type)
        except (pa.ArrowException, ValueError) as error:
            position = _find_first_unfit(cells, declared_type)
            raise EncodingError(
                f"expected a value of {declared_type}: {error!s:.200}", position
            ) from error
        has_nulls = self._nullable or cast.null_count > 0
        values = declared_field.cells.column(declared_field, cast, has_nulls=has_nulls)
        return values.take(np.arange(len(cast)))


def _find_first_unfit(cells: pa.Array, declared_type: pa.DataType) -> int:
    """Return the position of the first cell that cannot be cast."""
    import pyarrow as pa

    for position in range(len(cells)):
        try:
            cast_cells(cells.slice(position, 1), declared_type)
        except (pa.ArrowException, ValueError):
            return position
    return 0  # only the cells together cannot be cast


# ---------------------------------------------------------------------------------------- casting


def cast_cells(cells: pa.Array, declared_type: pa.DataType) -> pa.Array:
    """Cast cells to a type.

    Raises:
        ValueError, pyarrow.ArrowException: a value would change, or Arrow has no such cast.
    """
    cast = cells.cast(declared_type)
    _check_unchanged(cells, cast)
    return cast


def _check_unchanged(before: pa.Array, after: pa.Array) -> None:
    """Check what Arrow changes without an error.

    Raises:
        ValueError: a value has changed.
    """
    import pyarrow as pa

    types = pa.types
    if types.is_struct(after.type):
        for field in after.type:
            _check_unchanged(_values_of_key(before, field.name), _values_of_key(after, field.name))
    elif types.is_nested(after.type):
        _check_unchanged(before.flatten(), after.flatten())
    elif types.is_floating(after.type):
        _check_still_finite(before, after)
    elif types.is_string(before.type) or types.is_large_string(before.type):
        _check_parsed(before, after)
    elif types.is_date(after.type) and types.is_timestamp(before.type):
        _check_starts_of_days(before, after)
    elif types.is_time(after.type) and types.is_timestamp(before.type):
        raise ValueError("a time of day would lose the day")


def _values_of_key(cells: pa.Array, name: str) -> pa.Array:
    """Return the values of a key of the structs that are not null."""
    present = cells.drop_null()
    return present.flatten()[present.type.get_field_index(name)]


def _check_still_finite(before: pa.Array, after: pa.Array) -> None:
    """Check that no finite number, or text of one, has become infinite.

    Raises:
        ValueError: a number has become infinite.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    types = pa.types
    is_lost = pc.is_inf(after)
    if types.is_floating(before.type):
        is_lost = pc.and_(is_lost, pc.invert(pc.is_inf(before)))
    elif types.is_string(before.type) or types.is_large_string(before.type):
        was_infinite = pc.match_substring_regex(before, _INFINITE)
        is_lost = pc.and_(is_lost, pc.invert(was_infinite))
    if pc.any(is_lost).as_py():
        raise ValueError(f"a number is beyond the largest of {after.type}")


def _check_parsed(texts: pa.Array, values: pa.Array) -> None:
    """Check that values of texts are those of the texts, where Arrow does not.

    Raises:
        ValueError: a time has become another time, or a decimal another number.
    """
    import pyarrow as pa

    from data_stack.formats.text_tables.exact_numbers import decimals_are_exact
    from data_stack.formats.text_tables.far_times import may_be_misread, times_are_exact

    if may_be_misread(values.type) and not times_are_exact(values, texts):
        raise ValueError("a time is outside of the years 1677 to 2262 of nanoseconds")
    if pa.types.is_decimal(values.type) and not decimals_are_exact(values, texts):
        raise ValueError(f"a number has more decimals than {values.type}")


def _check_starts_of_days(before: pa.Array, after: pa.Array) -> None:
    """Check that times that have become days are the starts of days.

    Raises:
        ValueError: a time is not the start of a day.
    """
    import pyarrow.compute as pc

    is_changed = pc.not_equal(after.cast(before.type), before)
    if pc.any(is_changed).as_py():
        raise ValueError("a time is not the start of a day")


def check_cast(stored_type: pa.DataType, declared_type: pa.DataType) -> None:
    """Check that Arrow casts one type to another, whatever the values.

    Raises:
        ConfigError: Arrow has no such cast.
    """
    import pyarrow as pa

    try:
        pa.nulls(0, stored_type).cast(declared_type)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise ConfigError(f"{declared_type!s:.60} is stored as {stored_type!s:.60}") from error
