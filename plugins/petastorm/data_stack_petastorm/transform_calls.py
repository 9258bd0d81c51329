"""Calls the function of a transform with a batch of rows, in the form that the function takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.access import copy_value
from data_stack.exception import ConfigError

#: The columns of a batch by name, shape ``(n, ...)``.
Columns: TypeAlias = Mapping[str, npt.NDArray[Any]]

#: What the function of a transform takes; see the argument ``on`` of TransformSpec.
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
        batch: the columns, shape ``(n, ...)``, n > 0. The function gets a copy, which it may
            change.
        on: the form of the function's argument: "rows" (also None), "numpy" or "pandas".
        rngs: a generator for each row; empty if the function takes none. A function of batches gets
            the generator of the first row.
        names: the fields that the function must return; None: those that it returns for the first
            row.
        removed_names: further fields that the function may return. The caller drops them.
        zones: the time zones of columns of instants, by name, for a function of DataFrames.

    Returns:
        The values of each field, in the order of the rows; of a function of "numpy", what it
        returned, which the caller checks.

    Raises:
        ConfigError: the function returned a field that is not declared, or a field is missing.
    """
    declared: set[str] | None = None
    if names is not None:
        declared = {*names, *batch, *removed_names}
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
    """Call a function of DataFrames. See :func:`call_transform`."""
    # frames.py needs pandas, which is optional.
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
    """Call a function of rows for each row. See :func:`call_transform`."""
    values_of_rows = zip(*batch.values(), strict=True)
    rows = [dict(zip(batch, values, strict=True)) for values in values_of_rows]
    if rngs:
        results = [function(row, rng=rng) for row, rng in zip(rows, rngs, strict=True)]
    else:
        results = [function(row) for row in rows]
    for result in results:
        _refuse_undeclared(result, declared)
        _require_fields(result, names or ())
    if names is None:
        names = list(results[0])
    columns: dict[str, list[Any]] = {}
    for name in names:
        columns[name] = [result[name] for result in results]
    return columns


def _require_fields(result: Any, names: Sequence[str]) -> None:
    """Check that the result for a row has all fields.

    Raises:
        ConfigError: a field is missing, or the result is not a mapping.
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
    """Refuse a result with fields that are not declared, because nobody would read them.

    Args:
        result: what the function returned: a row, columns or a DataFrame.
        declared: the fields that the function may return; None for any.

    Raises:
        ConfigError: a field is not declared.
    """
    if declared is None or not hasattr(result, "keys"):
        return
    # Mappings and DataFrames have keys(). Other results are refused where their fields are missing.
    for name in result.keys():  # noqa: SIM118
        if name not in declared:
            returned = ", ".join(map(str, result.keys()))
            raise ConfigError(
                f"Transformed result columns ({returned}) do not match required schema columns: "
                f"{name!r} is not declared. Add it to edit_fields, as in edit_fields=[({name!r}, "
                "np.float32, (), False)], or do not return it"
            )
