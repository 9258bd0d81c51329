"""Converts columns to the types that the features of a card declare, as the package ``datasets`` casts them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from data_stack.dataset.encoders import Encoder
from data_stack.dataset.encoders.errors import EncodingError
from data_stack.exception import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

_TIMESTAMP: Final = re.compile(r"timestamp\[(s|ms|us|ns)(?:, *tz=([\w/+:-]{1,60}))?\]", re.ASCII)
_DECIMAL: Final = re.compile(r"decimal(128|256)\((\d{1,2}), *(-?\d{1,2})\)", re.ASCII)
_LISTS: Final = ("List", "Sequence", "LargeList")
#: Texts of infinite numbers, as Arrow reads them.
_INFINITE: Final = r"(?i)^\s*[+-]?inf(inity)?\s*$"
_MAX_DEPTH: Final = 100


class CastEncoder(Encoder):
    """Casts values of one type of Arrow to another, as far as they do not change.

    Numbers, times and bools become text, text is parsed, a number other than 0 is true. What the declared type cannot hold is an
    error: also infinite floats of finite numbers and days of times, which the package ``datasets`` makes in silence.

    Args:
        stored: the type of the files, as :func:`~data_stack.formats.parquet.types.describe_type` describes it.
        feature: the declared feature, in the form of files.
        nullable: whether the column has nulls anywhere; then its values are objects.
    """

    kind = "huggingface_cast"

    def __init__(self, stored: Any, feature: Mapping[str, Any], nullable: bool) -> None:
        self._stored, self._feature, self._nullable = stored, dict(feature), bool(nullable)
        self._learned = {}

    def config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {"stored": self._stored, "feature": self._feature, "nullable": self._nullable}

    def _transform(self, column: npt.NDArray[Any]) -> npt.NDArray[Any]:
        import pyarrow as pa

        from data_stack.formats.parquet import infer_schema
        from data_stack.formats.parquet.types import type_described

        type_ = arrow_type_of(self._feature)
        if type_ is None:
            raise ConfigError(f"no type of Arrow for the feature {self._feature!s:.200}")
        stored = pa.field("stored", type_described(self._stored))
        declared = pa.field("declared", type_)
        schema = infer_schema(pa.schema([stored, declared]))
        cells = schema["stored"].cells.encode_column(schema["stored"], column)
        try:
            cast = cast_cells(cells, type_)
        except (pa.ArrowException, ValueError) as error:
            place = _first_unfit(cells, type_)
            raise EncodingError(f"expected a value of {type_}: {error!s:.200}", place) from error
        field = schema["declared"]
        has_nulls = self._nullable or bool(cast.null_count)
        values = field.cells.column(field, cast, has_nulls=has_nulls)
        return values.take(np.arange(len(cast)))


def _first_unfit(cells: pa.Array, type_: pa.DataType) -> int:
    """The position of the first cell that cannot be cast."""
    import pyarrow as pa

    for place in range(len(cells)):
        try:
            cast_cells(cells.slice(place, 1), type_)
        except (pa.ArrowException, ValueError):
            return place
    return 0


def cast_cells(cells: pa.Array, type_: pa.DataType) -> pa.Array:
    """Cast cells to a type.

    Raises:
        ValueError, pyarrow.ArrowException: a value would change, or Arrow has no such cast.
    """
    cast = cells.cast(type_)
    _check_unchanged(cells, cast)
    return cast


def _check_unchanged(before: pa.Array, after: pa.Array) -> None:
    """Check what Arrow changes without an error.

    Raises:
        ValueError: a value has changed.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    types = pa.types
    if types.is_struct(after.type):
        for name in (field.name for field in after.type):
            _check_unchanged(_child(before, name), _child(after, name))
    elif types.is_nested(after.type):
        _check_unchanged(before.flatten(), after.flatten())
    elif types.is_floating(after.type):
        is_lost = pc.is_inf(after)
        if types.is_floating(before.type):
            is_lost = pc.and_(is_lost, pc.invert(pc.is_inf(before)))
        elif types.is_string(before.type) or types.is_large_string(before.type):
            is_lost = pc.and_(is_lost, pc.invert(pc.match_substring_regex(before, _INFINITE)))
        if pc.any(is_lost).as_py():
            raise ValueError(f"a number is beyond the largest of {after.type}")
    elif types.is_date(after.type) and types.is_timestamp(before.type):
        if pc.any(pc.not_equal(after.cast(before.type), before)).as_py():
            raise ValueError("a time is not the start of a day")
    elif types.is_time(after.type) and types.is_timestamp(before.type):
        raise ValueError("a time of day would lose the day")


def _child(cells: pa.Array, name: str) -> pa.Array:
    """The values of a key of structs that are not null."""
    present = cells.drop_null()
    return present.flatten()[present.type.get_field_index(name)]


def check_cast(stored: pa.DataType, declared: pa.DataType) -> None:
    """Check that Arrow casts one type to another, whatever the values.

    Raises:
        ConfigError: it does not.
    """
    import pyarrow as pa

    try:
        pa.nulls(0, stored).cast(declared)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise ConfigError(f"{declared!s:.60} is stored as {stored!s:.60}") from error


def arrow_type_of(feature: Any, depth: int = 0) -> pa.DataType | None:
    """The Arrow type of a feature of plain values, lists and dicts; None if there are others in it.

    Raises:
        ConfigError: it is nested too deeply, or the name of a type is unknown.
    """
    import pyarrow as pa

    if depth > _MAX_DEPTH:
        raise ConfigError(f"features are nested more than {_MAX_DEPTH} levels deep")
    if isinstance(feature, list) and len(feature) == 1:
        feature = {"_type": "List", "feature": feature[0]}
    if not isinstance(feature, Mapping) or not feature:
        return None
    kind = feature.get("_type")
    if kind == "Value":
        return _type_named(str(feature.get("dtype")))
    if kind in _LISTS:
        inner = feature.get("feature")
        is_transposed = kind == "Sequence" and isinstance(inner, Mapping) and "_type" not in inner
        element = None if is_transposed else arrow_type_of(inner, depth + 1)
        if element is None:
            return None
        length = feature.get("length", -1)
        if kind == "LargeList":
            return pa.large_list(element)
        return pa.list_(element, length if isinstance(length, int) else -1)
    if isinstance(kind, str):
        return None
    children = {str(name): arrow_type_of(each, depth + 1) for name, each in feature.items()}
    if None in children.values():
        return None
    return pa.struct([pa.field(name, type_) for name, type_ in children.items()])


def _type_named(name: str) -> pa.DataType:
    """A type by the name that ``datasets`` gives it: Arrow's.

    Raises:
        ConfigError: it is unknown.
    """
    import pyarrow as pa

    if match := _TIMESTAMP.fullmatch(name):
        return pa.timestamp(match[1], match[2])
    if match := _DECIMAL.fullmatch(name):
        make = pa.decimal128 if match[1] == "128" else pa.decimal256
        try:
            return make(int(match[2]), int(match[3]))
        except ValueError as error:
            raise ConfigError(f"unknown type {name!r:.60}") from error
    try:
        return pa.type_for_alias(name)
    except ValueError as error:
        raise ConfigError(f"unknown type {name!r:.60}") from error
