"""``petastorm.selectors``: which row groups are read."""

from data_stack.formats.parquet import IntersectIndexSelector, SingleIndexSelector, UnionIndexSelector

__all__ = ["IntersectIndexSelector", "SingleIndexSelector", "UnionIndexSelector"]
