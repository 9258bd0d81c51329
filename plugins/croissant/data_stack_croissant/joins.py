"""Plans the joins of the tables that a record set reads."""

from __future__ import annotations

from collections.abc import Sequence

from data_stack.exception import ConfigError
from data_stack_croissant.record_column import RecordColumn
from data_stack_croissant.record_set import Join


def plan_joins(
    columns: Sequence[RecordColumn], joins: Sequence[Join]
) -> tuple[str | None, tuple[Join, ...]]:
    """Return the table with the rows, and the joins of the other tables in their order.

    Args:
        columns: of the record set.
        joins: one for each field of a table that refers to another table.

    Raises:
        ConfigError: a table is not reached by joins.
    """
    tables = tables_of(columns)
    joined_tables = {join.right.table for join in joins}
    first_table = next((table for table in tables if table not in joined_tables), None)
    ordered = _order_joins(joins, first_table)

    reached = {first_table, *(join.right.table for join in ordered)}
    for column in columns:
        if column.table is not None and column.table not in reached:
            names = " and ".join(map(repr, tables))
            raise ConfigError(
                f"{column.where} needs a join of {names}, but no field refers from one to the "
                f"other; leave the field out of the document to read the others"
            )
    return first_table, tuple(ordered)


def tables_of(columns: Sequence[RecordColumn]) -> list[str]:
    """Return the tables of columns, each once, in the order of the columns."""
    tables: list[str] = []
    for column in columns:
        if column.table is not None and column.table not in tables:
            tables.append(column.table)
    return tables


def _order_joins(joins: Sequence[Join], first_table: str | None) -> list[Join]:
    """Return the joins that lead from the first table to others, each after the one it needs.

    A table is joined once.
    """
    ordered: list[Join] = []
    reached = {first_table}
    while True:
        next_join = None
        for join in joins:
            if join.left.table in reached and join.right.table not in reached:
                next_join = join
                break
        if next_join is None:
            return ordered
        ordered.append(next_join)
        reached.add(next_join.right.table)
