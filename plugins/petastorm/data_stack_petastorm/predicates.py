"""``petastorm.predicates``: which rows are read."""

from data_stack.formats.parquet import in_intersection, in_lambda, in_negate, in_pseudorandom_split, in_reduce, in_set

__all__ = ["in_intersection", "in_lambda", "in_negate", "in_pseudorandom_split", "in_reduce", "in_set"]
