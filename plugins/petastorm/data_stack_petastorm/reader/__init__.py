"""Petastorm's readers: named tuples of rows and of row groups."""

from data_stack_petastorm.reader.arguments import ReaderArguments
from data_stack_petastorm.reader.errors import NoFieldsError, ParquetFilesNotFoundError
from data_stack_petastorm.reader.make import make_batch_reader, make_reader
from data_stack_petastorm.reader.reader import Reader

__all__ = [
    "NoFieldsError",
    "ParquetFilesNotFoundError",
    "Reader",
    "ReaderArguments",
    "make_batch_reader",
    "make_reader",
]
