"""Petastorm's description of n-grams, which are sequences of rows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

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

        NGram(
            {-1: [Frames.speed], 0: ["speed", "image"], 1: ["angle.*"]},
            delta_threshold=0.1,
            timestamp_field=Frames.time,
        )

    The rows of a sequence are consecutive, and no timestamp exceeds the previous one by more than
    ``delta_threshold``. The lowest offset is the first row. An offset in between that is not listed
    is a row without fields.

    Args:
        fields: for each offset, a list of fields, names, and regular expressions of whole names. A
            reader replaces them by fields.
        delta_threshold: maximum difference of the timestamps of consecutive rows; a number, or a
            timedelta.
        timestamp_field: the field by which rows are sorted: a field, a name, or a regular
            expression that matches one field. It need not be among ``fields``.
        timestamp_overlap: whether sequences may share rows. Otherwise each sequence begins after
            the last timestamp of the previous one; the first possible sequence is chosen, then the
            next.
        within_row_groups: whether sequences end at row groups, as in Petastorm. If False, they may
            span row groups, files and partitions, in the order of the files.

    Raises:
        ConfigError: an argument is invalid.

    Attributes:
        delta_threshold: as given; a timedelta of Python as NumPy's.
        timestamp_overlap: as given.
        within_row_groups: as given.
    """

    delta_threshold: int | float | np.timedelta64
    timestamp_overlap: bool
    within_row_groups: bool
    #: The fields of each offset, as given until they are resolved.
    _fields: dict[int, list[Any]]
    #: As given until it is resolved. Programs that were written for Petastorm read this name.
    _timestamp_field: Any

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
                "timestamp_overlap must be set and must be of type bool, "
                f"got {timestamp_overlap!r:.40}"
            )
        self._fields = _check_fields(fields)
        _check_choice(timestamp_field)
        self._timestamp_field = timestamp_field
        self.delta_threshold = check_gap(delta_threshold, "delta_threshold")
        self.timestamp_overlap = timestamp_overlap
        self.within_row_groups = within_row_groups

    @property
    def fields(self) -> dict[int, list[Any]]:
        """The fields of each offset.

        They are names and expressions until a reader or :meth:`resolve_regex_field_names` resolves
        them.
        """
        return self._fields

    @property
    def timestamp_field(self) -> Any:
        """The field by which rows are sorted, as given, or the field that it was resolved to."""
        return self._timestamp_field

    @property
    def offsets(self) -> range:
        """The offsets of all rows, from the lowest to the highest."""
        return range(min(self._fields), max(self._fields) + 1)

    @property
    def length(self) -> int:
        """Number of rows from the lowest to the highest offset."""
        return len(self.offsets)

    def __eq__(self, other: object) -> bool:
        """Return whether the other n-gram has the same fields at each offset, in any order."""
        if not isinstance(other, NGram):
            return False
        if self._fields.keys() != other._fields.keys():
            return False
        for offset, choices in self._fields.items():
            if set(choices) != set(other._fields[offset]):
                return False
        return True

    __hash__ = None  # type: ignore[assignment]  # resolving changes it

    # ------------------------------------------------------------------ fields of a schema

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
        fields: dict[int, list[Any]] = {}
        for offset, choices in self._fields.items():
            fields[offset] = self.convert_fields(schema, choices)
        schema_of_timestamp = schema if stored is None else stored
        timestamps = self.convert_fields(schema_of_timestamp, [self._timestamp_field])
        if len(timestamps) != 1:
            matched = ", ".join(field.name for field in timestamps) or "none"
            raise ConfigError(
                "timestamp_field was matched to more than one unischema field, or to none: "
                f"{matched}"
            )
        self._fields = fields
        self._timestamp_field = timestamps[0]

    def convert_fields(
        self, unischema: Unischema | Schema, field_list: Iterable[Any]
    ) -> list[UnischemaField]:
        """Return the fields of a schema that are chosen, each once.

        The chosen fields and names come first, then the fields that regular expressions match, as
        in a schema view.

        Args:
            unischema: the schema.
            field_list: fields, names, and regular expressions of whole names.

        Raises:
            ConfigError: an element of ``field_list`` has another type, or the schema lacks the
                field.
        """
        if isinstance(unischema, Schema):
            unischema = as_unischema(unischema)
        fields: list[UnischemaField] = []
        patterns: list[Any] = []
        for choice in field_list:
            is_name_or_expression = isinstance(choice, (str, re.Pattern))
            name: Any = choice
            if not is_name_or_expression:
                name = getattr(choice, "name", None)
            if name in unischema.fields:
                fields.append(unischema.fields[name])
            elif is_name_or_expression:
                patterns.append(choice)  # a compiled expression keeps its flags
            else:
                unknown = choice if name is None else name
                raise ConfigError(
                    f"unknown field {unknown!r:.80}; the schema has {', '.join(unischema.fields)}"
                )
        fields.extend(match_unischema_fields(unischema, patterns))
        return list(dict.fromkeys(fields))

    def get_field_names_at_timestep(self, timestep: int) -> list[str]:
        """Return the names of the fields at an offset; none for an offset without fields.

        Regular expressions that were not resolved are returned unchanged.
        """
        return [getattr(field, "name", field) for field in self._fields.get(timestep, ())]

    def get_field_names_at_all_timesteps(self) -> list[Any]:
        """Return the fields of all offsets, each once.

        Despite Petastorm's name of this method, these are fields, or what was given for them.
        """
        fields: dict[Any, None] = {}  # a dict keeps the order
        for fields_of_offset in self._fields.values():
            fields.update(dict.fromkeys(fields_of_offset))
        return list(fields)

    def get_schema_at_timestep(self, schema: Unischema, timestep: int) -> Unischema:
        """Return the schema of the rows at an offset, with fields in the order of ``schema``."""
        names = self.get_field_names_at_timestep(timestep)
        fields = [field for name, field in schema.fields.items() if name in names]
        return schema.create_schema_view(fields)

    # ------------------------------------------------------------------ sequences of rows

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
        """Return the n-grams of rows, as dicts of dicts by offset, in the order of the rows.

        Args:
            data: rows with the fields and the timestamp.
            schema: ignored; ``data`` determines the fields.

        Raises:
            ConfigError: the rows are not sorted by their timestamps, or lack a field.
        """
        # Imported here because that module imports this one.
        from data_stack_petastorm.ngram_iterator import NGramIterator

        if len(data) < self.length:
            return []
        rows = InMemoryDatasetIterator([dict(row) for row in data])
        sequences: Any = NGramIterator(rows, self, one_row_group=True)
        ngrams = []
        for sequence in sequences:
            # Petastorm's sequences also have the offsets without fields.
            ngrams.append({offset: dict(sequence.get(offset) or {}) for offset in self.offsets})
        return ngrams


def _check_fields(fields: Any) -> dict[int, list[Any]]:
    """Return a copy of the fields of each offset.

    Raises:
        ConfigError: ``fields`` is not a mapping of integers to lists of fields.
    """
    if not isinstance(fields, Mapping) or len(fields) == 0:
        raise ConfigError(
            "the fields of an n-gram must be a mapping such as {0: ['id'], 1: ['id']}, "
            f"got {fields!r:.80}"
        )
    checked: dict[int, list[Any]] = {}
    for offset, choices in fields.items():
        check_integer("an offset of an n-gram", offset)
        is_list = isinstance(choices, Sequence) and not isinstance(choices, str)
        if not is_list:
            raise ConfigError(
                f"the fields at offset {offset} must be a list of names, got {choices!r:.80}"
            )
        for choice in choices:
            _check_choice(choice)
        checked[offset] = list(choices)
    return checked


def _check_choice(choice: Any) -> None:
    """Refuse a value that is not a field, a name or a regular expression.

    Raises:
        ConfigError: the value is something else.
    """
    is_text = isinstance(choice, (str, re.Pattern))
    if not is_text and not hasattr(choice, "name"):
        raise ConfigError(
            "fields of an n-gram must be UnischemaFields, names or regular expressions, "
            f"got {choice!r:.80}"
        )
