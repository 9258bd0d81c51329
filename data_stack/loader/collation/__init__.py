"""Collation of values of different lengths into arrays."""

from data_stack.loader.collation.collation import Collation as Collation
from data_stack.loader.collation.concatenated import Concatenated as Concatenated
from data_stack.loader.collation.padded import Padded as Padded
from data_stack.loader.collation.ragged import Ragged as Ragged
