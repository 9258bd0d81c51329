"""Petastorm's n-grams: sequences of rows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from data_stack.dataset.iterator import InMemoryDatasetIterator
from data_stack.dataset.iterator.layers.windowed import check_gap
from data_stack.dataset.positions import check_integer
from data_stack.exception import ConfigError
from data_stack.formats.parquet import Schema
from data_stack_petastorm.schemas import as_unischema
from data_stack_petastorm.unischema import Unischema, UnischemaField, match_unischema_fields


class NGram:
    """Describes sequences of rows, and the fields of each row.

    ::

        NGram({-1: [Frames.speed], 0: ["speed", "image"], 1: ["angle.*"]}, delta_threshold=0.1, timestamp_field=Frames.time)

    The rows of a sequence are consecutive, and no timestamp exceeds the previous one by more than ``delta_threshold``. The lowest
    offset is the first row. An offset in between that is not listed is a row without fields.

    Args:
        fields: for each offset, a list of fields, names, and regular expressions of whole names. A reader replaces them by
            fields.
        delta_threshold: maximum difference of the timestamps of consecutive rows; a number, or a timedelta.
        timestamp_field: the field by which rows are sorted: a field, a name, or a regular expression that matches one field. It
            need not be among ``fields``.
        timestamp_overlap: whether sequences may share rows. Otherwise each sequence begins after the last timestamp of the
            previous one; the first possible sequence is chosen, then the next.
        within_row_groups: whether sequences end at row groups, as in Petastorm. If False, they may span row groups, files and
            partitions, in the order of the files.

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
    ) -> None:
        if not isinstance(timestamp_overlap, bool):
            raise ConfigError(
                f"timestamp_overlap must be set and must be of type bool, got {timestamp_overlap!r:.40}"
            )
        given: Any = fields
        if not isinstance(given, Mapping) or len(given) == 0:
            raise ConfigError(
                f"the fields of an n-gram must be a mapping such as {{0: ['id'], 1: ['id']}}, got {given!r:.80}"
            )
        for offset, choices in given.items():
            check_integer("an offset of an n-gram", offset)
            if isinstance(choices, (str, re.Pattern)) or not isinstance(choices, Sequence):
                raise ConfigError(
                    f"the fields at offset {offset} must be a list of names, got {choices!r:.80}"
                )
        self._fields: dict[int, Any] = {offset: list(choices) for offset, choices in fields.items()}
        for field in (timestamp_field, *self.get_field_names_at_all_timesteps()):
            if not isinstance(field, (str, re.Pattern)) and not hasattr(field, "name"):
                raise ConfigError(
                    f"fields of an n-gram must be UnischemaFields, names or regular expressions, got {field!r:.80}"
                )
        self.delta_threshold = check_gap(delta_threshold, "delta_threshold")
        self._timestamp_field = timestamp_field
        self.timestamp_overlap, self.within_row_groups = timestamp_overlap, within_row_groups

    @property
    def fields(self) -> dict[int, list[Any]]:
        """The fields of each offset; names and expressions until a reader or :meth:`resolve_regex_field_names` resolves them."""
        return self._fields

    @property
    def length(self) -> int:
        """Number of rows from the lowest to the highest offset."""
        return max(self._fields) - min(self._fields) + 1

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, NGram) or set(self._fields) != set(other._fields):
            return False
        return all(
            set(self._fields[offset]) == set(other._fields[offset]) for offset in self._fields
        )

    __hash__ = None  # type: ignore[assignment]  # resolving changes it

    # ------------------------------------------------------------------ of a schema

    def resolve_regex_field_names(
        self, schema: Unischema | Schema, stored: Unischema | Schema | None = None
    ) -> None:
        """Replace names and regular expressions by fields.

        Args:
            schema: the schema with the fields.
            stored: the schema with the timestamp; None: ``schema``.

        Raises:
            ConfigError: a field does not exist, or the timestamp matches several.
        """
        fields = {
            offset: self.convert_fields(schema, wanted) for offset, wanted in self._fields.items()
        }
        timestamps = self.convert_fields(
            schema if stored is None else stored, [self._timestamp_field]
        )
        if len(timestamps) != 1:
            found = ", ".join(each.name for each in timestamps) or "none"
            raise ConfigError(
                f"timestamp_field was matched to more than one unischema field, or to none: {found}"
            )
        self._fields, self._timestamp_field = fields, timestamps[0]

    def convert_fields(
        self, unischema: Unischema | Schema, field_list: Iterable[Any]
    ) -> list[UnischemaField]:
        """Return the fields of a schema that the fields, names and regular expressions match; fields first, as in a view.

        Raises:
            ConfigError: an element has another type, or the schema lacks the field.
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
                raise ConfigError(
                    f"unknown field {name or each!r:.80}; the schema has {', '.join(known.fields)}"
                )
        return list(dict.fromkeys([*found, *match_unischema_fields(known, patterns)]))

    def get_field_names_at_timestep(self, timestep: int) -> list[str]:
        """Return the names of the fields at an offset, and regular expressions that are not resolved."""
        return [getattr(field, "name", field) for field in self._fields.get(timestep, ())]

    @property
    def timestamp_field(self) -> Any:
        """As given, or the field that it was resolved to."""
        return self._timestamp_field

    def get_field_names_at_all_timesteps(self) -> list[Any]:
        """Return the fields of all offsets, each once."""
        return list(dict.fromkeys(field for wanted in self._fields.values() for field in wanted))

    def get_schema_at_timestep(self, schema: Unischema, timestep: int) -> Unischema:
        """Return the schema of the rows at an offset, with fields in the order of ``schema``."""
        names = self.get_field_names_at_timestep(timestep)
        return schema.create_schema_view(
            [field for name, field in schema.fields.items() if name in names]
        )

    def make_namedtuple(
        self, schema: Unischema, ngram_as_dicts: Mapping[int, Mapping[str, Any]]
    ) -> dict[int, Any]:
        """Convert a sequence of dicts to named tuples."""
        return {
            offset: self.get_schema_at_timestep(schema, offset).make_namedtuple(**row)
            for offset, row in ngram_as_dicts.items()
        }

    def form_ngram(
        self, data: Sequence[Mapping[str, Any]], schema: Any = None
    ) -> list[dict[int, dict[str, Any]]]:
        """Return the sequences of rows, in their order.

        Args:
            data: rows with the fields and the timestamp.
            schema: ignored; ``data`` determines the fields.

        Raises:
            ConfigError: the rows are not sorted by their timestamps, or lack a field.
        """
        from data_stack_petastorm.ngram_iterator import NGramIterator

        if len(data) < self.length:
            return []
        sequences: Any = NGramIterator(
            InMemoryDatasetIterator([dict(row) for row in data]), self, one_row_group=True
        )
        offsets = range(min(self._fields), max(self._fields) + 1)
        return [
            {offset: dict(found.get(offset) or {}) for offset in offsets} for found in sequences
        ]
