"""``petastorm.ngram``: sequences of rows."""

from data_stack.formats.parquet import NGram

__all__ = ["NGram"]
