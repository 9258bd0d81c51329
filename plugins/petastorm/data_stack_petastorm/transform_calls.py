"""Calls the function of a transform with the rows of a batch, in the form that it takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.access import copy_value
from data_stack.exception import ConfigError

Columns: TypeAlias = Mapping[str, npt.NDArray[Any]]
Form: TypeAlias = Literal["rows", "numpy", "pandas"]


def call_transform(
    function: Callable[..., Any],
    batch: Columns,
    *,
    on: Form | None,
    rngs: Sequence[np.random.Generator] = (),
    names: Sequence[str] | None = None,
    removed_names: Sequence[str] = (),
    zones: Mapping[str, str] = MappingProxyType({}),
) -> Any:
    """Call the function of a transform for a batch of rows.

    Args:
        function: the function.
        batch: the columns, shape ``(n, ...)``, n > 0. They are copied, as the function may change
            them.
        on: the form of its argument: "rows" (also None), "numpy" or "pandas".
        rngs: a generator for each row, if the function takes one; a function of batches gets that
            of the first row.
        names: the fields that it must return; None: those that it returns for the first row.
        removed_names: fields that it may return as well, though they are dropped.
        zones: the time zones of columns of instants, by name, for a function of DataFrames.

    Returns:
        The values of each field, in the order of the rows.

    Raises:
        ConfigError: the function returned a field that is not declared, or a field is missing.
    """
    declared = None if names is None else {*names, *batch, *removed_names}
    if on == "pandas":
        return _call_with_frame(function, batch, rngs, names, declared, zones)
    batch = copy_value(batch)
    if on == "numpy":
        columns = _call_with_batch(function, batch, rngs)
        _refuse_undeclared(columns, declared)
        return columns
    return _call_with_rows(function, batch, rngs, names, declared)


def _call_with_frame(
    function: Callable[..., Any],
    batch: Columns,
    rngs: Sequence[np.random.Generator],
    names: Sequence[str] | None,
    declared: set[str] | None,
    zones: Mapping[str, str],
) -> dict[str, Any]:
    # pandas is optional.
    from data_stack_petastorm.frames import as_frame, columns_of_frame

    frame = _call_with_batch(function, as_frame(batch, zones), rngs)
    _refuse_undeclared(frame, declared)
    if names is None:
        names = list(frame)
    return columns_of_frame(frame, names)


def _call_with_batch(
    function: Callable[..., Any], batch: Any, rngs: Sequence[np.random.Generator]
) -> Any:
    """Call a function of batches, with the generator of the first row if it takes one."""
    if rngs:
        return function(batch, rng=rngs[0])
    return function(batch)


def _call_with_rows(
    function: Callable[..., Any],
    batch: Columns,
    rngs: Sequence[np.random.Generator],
    names: Sequence[str] | None,
    declared: set[str] | None,
) -> dict[str, list[Any]]:
    rows = [dict(zip(batch, values, strict=True)) for values in zip(*batch.values(), strict=True)]
    if rngs:
        results = [function(row, rng=rng) for row, rng in zip(rows, rngs, strict=True)]
    else:
        results = [function(row) for row in rows]
    for result in results:
        _refuse_undeclared(result, declared)
        _require_fields(result, names or ())
    if names is None:
        names = list(results[0])
    return {name: [result[name] for result in results] for name in names}


def _require_fields(result: Any, names: Sequence[str]) -> None:
    """Check that a row has all fields.

    Raises:
        ConfigError: a field is missing, or the result is not a row.
    """
    for name in names:
        if not isinstance(result, Mapping) or name not in result:
            raise missing_field(name, result)


def missing_field(name: str, result: Any) -> ConfigError:
    """Return the error for a field that a function did not return.

    Args:
        name: the field.
        result: what the function returned.
    """
    returned = f"a {type(result).__name__}"
    if isinstance(result, Mapping):
        returned = ", ".join(map(str, result))
    return ConfigError(
        f"Transformed result columns ({returned}) do not match required schema columns: {name!r} "
        "is missing. The function must return a dict (or DataFrame) of all fields; list dropped "
        "fields in removed_fields"
    )


def _refuse_undeclared(result: Any, declared: set[str] | None) -> None:
    """Refuse a row or columns with fields that are not declared: they would be lost.

    Args:
        result: what the function returned.
        declared: the fields of the result, and those that the function received; None for any.

    Raises:
        ConfigError: a field is not declared.
    """
    if declared is None or not hasattr(result, "keys"):
        return
    # A DataFrame has keys as well; iterating over another object may do anything.
    for name in result.keys():  # noqa: SIM118
        if name not in declared:
            returned = ", ".join(map(str, result.keys()))
            raise ConfigError(
                f"Transformed result columns ({returned}) do not match required schema columns: "
                f"{name!r} is not declared. Add it to edit_fields, as in edit_fields=[({name!r}, "
                "np.float32, (), False)], or do not return it"
            )
