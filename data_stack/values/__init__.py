"""Columns of values: how they are stacked, typed, compared, digested."""
