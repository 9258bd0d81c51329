"""Errors of making a reader that programs of Petastorm catch by Python's classes."""

from __future__ import annotations

from data_stack.exception import ConfigError, ResourceNotFoundError


class ParquetFilesNotFoundError(ResourceNotFoundError, FileNotFoundError):
    """The URL of a reader has no Parquet files."""


class NoFieldsError(ConfigError, RuntimeError):
    """``schema_fields`` matches no field of the dataset."""
