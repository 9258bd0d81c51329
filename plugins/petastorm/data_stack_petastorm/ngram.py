"""Sequences of rows in Petastorm's spelling."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from data_stack.dataset.iterator import InMemoryDatasetIterator
from data_stack.exception import ConfigError
from data_stack.formats import parquet
from data_stack.formats.parquet import Schema
from data_stack_petastorm.schemas import as_unischema
from data_stack_petastorm.unischema import Unischema, UnischemaField, match_unischema_fields


class NGram:
    """Which rows make a sequence, and which of their fields are wanted.

    ::

        NGram({-1: [Frames.speed], 0: ["speed", "image"], 1: ["angle.*"]}, delta_threshold=0.1, timestamp_field=Frames.time)

    Args:
        fields: for each offset a list of the fields of that row: fields, names, and regular expressions of whole names. A reader
            puts fields in their place.
        delta_threshold: of the timestamps of two rows that follow each other, at most; a number, of times also a timedelta.
        timestamp_field: whose values do not decrease: a field, a name, or a regular expression that matches one field. It need
            not be among ``fields``.
        timestamp_overlap: whether sequences may share rows.
        within_row_groups: whether sequences end at row groups, as in Petastorm; False also gives those that span two of them, in
            the order of the files, also of two partitions.
        options: ``group_field`` and ``stride`` of :class:`data_stack.formats.parquet.NGram`.

    Raises:
        ConfigError: an argument is invalid.
    """

    def __init__(
        self,
        fields: Mapping[int, Sequence[Any]],
        delta_threshold: Any,
        timestamp_field: Any,
        timestamp_overlap: bool = True,
        *,
        within_row_groups: bool = True,
        **options: Any,
    ) -> None:
        if not isinstance(timestamp_overlap, bool):
            raise ConfigError(f"timestamp_overlap must be set and must be of type bool, not {timestamp_overlap!r:.40}")
        for field in (timestamp_field, *_all_of(fields)):
            if not isinstance(field, (tuple, str, re.Pattern)) and not hasattr(field, "name"):
                raise ConfigError(f"a field of an n-gram is a UnischemaField, a name or a regular expression, not {field!r:.80}")
        self._options = {"timestamp_overlap": timestamp_overlap, "within_row_groups": within_row_groups, **options}
        self._engine = parquet.NGram(fields, delta_threshold, timestamp_field, **self._options)
        self._fields: dict[int, Any] = dict(fields)
        self._timestamp_field = timestamp_field

    @classmethod
    def of(cls, ngram: Any) -> NGram:
        """The n-gram of either kind in this one."""
        if isinstance(ngram, NGram):
            return ngram
        names = ("timestamp_overlap", "group_field", "stride", "within_row_groups")
        options = {name: getattr(ngram, name) for name in names}
        return cls(ngram.fields, ngram.delta_threshold, ngram.timestamp_field, **options)

    # ------------------------------------------------------------------ what it is

    @property
    def fields(self) -> dict[int, list[Any]]:
        """The fields of each offset, as given until a reader or :meth:`resolve_regex_field_names` resolves them."""
        return self._fields

    @property
    def length(self) -> int:
        """Rows from the lowest to the highest offset."""
        return self._engine.length

    @property
    def delta_threshold(self) -> Any:
        """As given."""
        return self._engine.delta_threshold

    @property
    def timestamp_overlap(self) -> bool:
        """As given."""
        return self._engine.timestamp_overlap

    @property
    def engine(self) -> parquet.NGram:
        """The n-gram by which data_stack reads the same sequences."""
        return self._engine

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, NGram) or set(self._fields) != set(other._fields):
            return False
        return all(set(self._fields[offset]) == set(other._fields[offset]) for offset in self._fields)

    __hash__ = None  # type: ignore[assignment]  # it changes when it is resolved

    # ------------------------------------------------------------------ of a schema

    def resolve_regex_field_names(self, schema: Unischema | Schema, stored: Unischema | Schema | None = None) -> None:
        """Put fields in the place of names and regular expressions, in place.

        Args:
            schema: the fields that there are.
            stored: those that the timestamp is among; None for the same.

        Raises:
            ConfigError: there is no such field, or more than one for the timestamp.
        """
        fields = {offset: self.convert_fields(schema, wanted) for offset, wanted in self._fields.items()}
        timestamps = self.convert_fields(schema if stored is None else stored, [self._timestamp_field])
        if len(timestamps) != 1:
            found = ", ".join(each.name for each in timestamps) or "none"
            raise ConfigError(f"timestamp_field was matched to more than one unischema field, or to none: {found}")
        names = {offset: [each.name for each in wanted] for offset, wanted in fields.items()}
        self._engine = parquet.NGram(names, self.delta_threshold, timestamps[0].name, **self._options)
        self._fields, self._timestamp_field = fields, timestamps[0]

    def convert_fields(self, unischema: Unischema | Schema, field_list: Iterable[Any]) -> list[UnischemaField]:
        """The fields of a schema that some fields, names and regular expressions mean: fields first, as in a schema view.

        Raises:
            ConfigError: an element is something else, or a field that the schema does not have.
        """
        known = as_unischema(unischema) if isinstance(unischema, Schema) else unischema
        found: list[UnischemaField] = []
        patterns: list[str] = []
        for each in field_list:
            name: Any = each if isinstance(each, str) else getattr(each, "name", None)
            if name in known.fields:
                found.append(known.fields[name])
            elif isinstance(each, (str, re.Pattern)):
                patterns.append(each if isinstance(each, str) else each.pattern)
            else:
                raise ConfigError(f"there is no field {name or each!r:.80}; there are {', '.join(known.fields)}")
        return list(dict.fromkeys([*found, *match_unischema_fields(known, patterns)]))

    def get_field_names_at_timestep(self, timestep: int) -> list[str]:
        """The names of the fields of an offset, none of one that is not named; regular expressions as they are."""
        return [getattr(field, "name", field) for field in self._fields.get(timestep, ())]

    def get_field_names_at_all_timesteps(self) -> list[Any]:
        """The fields of all offsets, each once."""
        return list(dict.fromkeys(_all_of(self._fields)))

    def get_schema_at_timestep(self, schema: Unischema, timestep: int) -> Unischema:
        """The schema of the rows of an offset, its fields in the order of ``schema``."""
        names = self.get_field_names_at_timestep(timestep)
        return schema.create_schema_view([field for name, field in schema.fields.items() if name in names])

    def make_namedtuple(self, schema: Unischema, ngram_as_dicts: Mapping[int, Mapping[str, Any]]) -> dict[int, Any]:
        """A sequence of dicts as one of named tuples."""
        return {
            offset: self.get_schema_at_timestep(schema, offset).make_namedtuple(**row) for offset, row in ngram_as_dicts.items()
        }

    def form_ngram(self, data: Sequence[Mapping[str, Any]], schema: Any = None) -> list[dict[int, dict[str, Any]]]:
        """The sequences of some rows, in their order.

        Args:
            data: rows with the fields that are wanted and the timestamp.
            schema: has no effect, the fields are those of ``data``.

        Raises:
            ConfigError: the rows are not sorted by their timestamps, or lack a field.
        """
        if len(data) < self.length:
            return []
        rows = InMemoryDatasetIterator([dict(row) for row in data])
        sequences: Any = parquet.NGramIterator(rows, dataclasses.replace(self._engine, within_row_groups=False))
        offsets = range(min(self._fields), max(self._fields) + 1)
        return [{offset: dict(found.get(offset) or {}) for offset in offsets} for found in sequences]


def _all_of(fields: Any) -> list[Any]:
    values = fields.values() if isinstance(fields, Mapping) else ()
    return [field for wanted in values if not isinstance(wanted, str) for field in wanted]
