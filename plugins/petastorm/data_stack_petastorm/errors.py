"""Errors of Petastorm's that programs catch."""

from __future__ import annotations

from data_stack.exception import ConfigError


class NoDataAvailableError(ConfigError):
    """A shard of a reader would be empty."""
