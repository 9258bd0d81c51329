"""Errors of Petastorm that programs catch."""

from __future__ import annotations

from data_stack.exception import ConfigError


class NoDataAvailableError(ConfigError):
    """A reader has fewer rows or row groups than shards."""
