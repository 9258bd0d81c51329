"""Plans the joins of the tables that a record set reads."""

from __future__ import annotations

from collections.abc import Container, Sequence

from data_stack.exception import ConfigError
from data_stack_croissant.record_column import RecordColumn
from data_stack_croissant.record_set import Join


def plan_joins(
    columns: Sequence[RecordColumn], joins: Sequence[Join]
) -> tuple[str | None, tuple[Join, ...]]:
    """Plan in which order the tables of a record set are joined.

    Args:
        columns: the columns of the record set.
        joins: a join for each field that refers to another table.

    Returns:
        The first table, whose rows become the rows of the record set; None if the columns read no
        table. Then the joins with the other tables, in their order.

    Raises:
        ConfigError: no join leads to a table.
    """
    tables = tables_of(columns)
    joined_tables = {join.right.table for join in joins}
    first_tables = [table for table in tables if table not in joined_tables]
    first_table = first_tables[0] if first_tables else None
    ordered = _order_joins(joins, first_table)

    reached = {first_table, *(join.right.table for join in ordered)}
    for column in columns:
        if column.table is not None and column.table not in reached:
            names = " and ".join(repr(table) for table in tables)
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
    """Return the joins that lead from the first table to others.

    A join comes after the one that reaches its left table. A table is joined once.
    """
    ordered: list[Join] = []
    reached = {first_table}
    next_join = _find_join(joins, reached)
    while next_join is not None:
        ordered.append(next_join)
        reached.add(next_join.right.table)
        next_join = _find_join(joins, reached)
    return ordered


def _find_join(joins: Sequence[Join], reached: Container[str | None]) -> Join | None:
    """Return the first join from a table that is reached to one that is not; None without one."""
    for join in joins:
        if join.left.table in reached and join.right.table not in reached:
            return join
    return None
