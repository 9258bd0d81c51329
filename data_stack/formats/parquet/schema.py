"""The schema of a Parquet dataset: fields with a dtype, a shape and a codec."""

from __future__ import annotations

import functools
import json
import operator
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats.parquet.codecs.arrow_codec import ArrowCodec
from data_stack.formats.parquet.codecs.binary import BinaryCells
from data_stack.formats.parquet.codecs.field_codec import FieldCodec, choose_codec, read_codec
from data_stack.formats.parquet.types import FieldLike, check_dtype, dtype_name
from data_stack.util.suggestions import did_you_mean
from data_stack.util.untrusted_text import describe_format, parse_json

if TYPE_CHECKING:
    import pyarrow as pa

#: The key of the schema in the key-value metadata of each file.
SCHEMA_KEY = b"data_stack.schema"
_VERSION = 1


@dataclass(frozen=True, init=False)
class Field(FieldLike):
    """The description of a column.

    ::

        Field("id", "int64")
        Field("image", "uint8", (None, None, 3), JpegCodec(quality=90))
        Field("price", Decimal, (), ScalarCodec("decimal(10,3)"), nullable=True)

    Attributes:
        name: name of the column.
        dtype: dtype of the values: a dtype of numpy (``str`` for text, ``bytes`` for bytes,
            ``object`` for structs, maps and nested lists), or ``decimal.Decimal``.
        shape: shape of each value, None for a variable size; ``()`` for scalars.
        codec: how values are stored: an :class:`ArrowCodec` such as ``ScalarCodec()``, or any
            :class:`~data_stack.codecs.Codec` or its type (``"zstd(json)"``). Default: Parquet's own
            types for scalars and lists, ``NdarrayCodec`` for other arrays.
        nullable: whether a value may be missing.

    Raises:
        ConfigError: dtype or shape is invalid, or the codec cannot hold such values.
    """

    codec: FieldCodec

    def __init__(
        self,
        name: str,
        dtype: npt.DTypeLike | type[Decimal],
        shape: Sequence[int | None] = (),
        codec: FieldCodec | str | None = None,
        nullable: bool = False,
    ) -> None:
        if not name or type(name) is not str:
            raise ConfigError(f"the name of a field must be a non-empty string, got {name!r:.60}")
        try:
            checked_dtype = check_dtype(dtype)
        except ConfigError as error:
            raise ConfigError(f"field {name!r}: {error}") from error
        # the way of a frozen dataclass to set its attributes
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "dtype", checked_dtype)
        object.__setattr__(self, "shape", _check_shape(name, shape))
        object.__setattr__(self, "nullable", bool(nullable))
        object.__setattr__(self, "codec", choose_codec(self, codec))
        self.arrow_type()  # raises if the codec does not fit

    @functools.cached_property
    def cells(self) -> ArrowCodec:
        """Encodes and decodes cells."""
        if isinstance(self.codec, ArrowCodec):
            return self.codec
        return BinaryCells(self.codec, self)

    def arrow_type(self) -> pa.DataType:
        """Return the type of the Parquet column."""
        try:
            return self.cells.arrow_type(self)
        except ConfigError as error:
            raise ConfigError(f"field {self.name!r}: {error}") from error

    def to_json(self) -> dict[str, Any]:
        """Return plain data for :meth:`from_json`."""
        return {
            "name": self.name,
            "dtype": dtype_name(self.dtype),
            "shape": list(self.shape),
            **self.codec.to_json(),
            "nullable": self.nullable,
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Field:
        """Return the field that :meth:`to_json` described.

        Raises:
            ConfigError: dtype, shape or codec is unknown.
        """
        try:
            name = content["name"]
            dtype = content["dtype"]
            shape = content["shape"]
            nullable = content["nullable"]
        except (KeyError, TypeError) as error:
            raise ConfigError(
                f"a field needs name, dtype, shape and nullable, got {content!r:.80}"
            ) from error
        is_valid = isinstance(dtype, str) and isinstance(shape, list) and isinstance(nullable, bool)
        if not is_valid:
            raise ConfigError(
                f"field {name!r:.60} has an invalid dtype, shape or nullable: {content!r:.200}"
            )
        return cls(name, dtype, shape, read_codec(content), nullable)


def _check_shape(name: str, shape: Sequence[int | None]) -> tuple[int | None, ...]:
    """Check the shape of a field.

    Raises:
        ConfigError: it is not a tuple of sizes and None.
    """
    try:
        sizes = tuple(None if size is None else operator.index(size) for size in shape)
    except TypeError as error:
        raise ConfigError(
            f"the shape of field {name!r} must be a tuple of sizes and None, got {shape!r:.80}"
        ) from error
    if any(size is not None and size < 0 for size in sizes):
        raise ConfigError(f"the shape of field {name!r} has a negative size: {shape!r:.80}")
    return sizes


class Schema:
    """The fields of a dataset, in their order.

    ::

        schema = Schema(
            "frames",
            [Field("id", "int64"), Field("image", "uint8", (None, None, 3), PngCodec())],
        )
        schema["image"].shape
        schema.view(["id", "image.*"])       # by name or regular expression

    Args:
        name: any name for the schema.
        fields: fields with different names.

    Attributes:
        name: the name of the schema.
        fields: the fields by name.

    Raises:
        ConfigError: two fields have the same name.
    """

    def __init__(self, name: str, fields: Iterable[Field]) -> None:
        self.name = str(name)
        self.fields: dict[str, Field] = {}
        for field in fields:
            if not isinstance(field, Field):
                raise ConfigError(f"the fields of a schema must be Fields, got {field!r:.80}")
            if field.name in self.fields:
                raise ConfigError(f"two fields of schema {name!r} have the name {field.name!r}")
            self.fields[field.name] = field

    def __getitem__(self, name: str) -> Field:
        if name not in self.fields:
            known = ", ".join(self.fields)
            suggestion = did_you_mean(name, self.fields)
            raise ConfigError(
                f"schema {self.name!r} has no field {name!r:.60}{suggestion}; it has: {known:.300}"
            )
        return self.fields[name]

    def __contains__(self, name: object) -> bool:
        return name in self.fields

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields.values())

    def __len__(self) -> int:
        return len(self.fields)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and (self.name, list(self)) == (other.name, list(other))

    def __hash__(self) -> int:
        return hash((self.name, tuple(self.fields)))

    def __repr__(self) -> str:
        lines = "".join(f"\n    {field!r}," for field in self)
        return f"Schema({self.name!r}, [{lines}\n])"

    def view(self, choices: Iterable[str | Field | re.Pattern[str]]) -> Schema:
        """Return the schema of some of the fields, in the order of this schema.

        Args:
            choices: names, regular expressions that match whole names, or fields of this schema.

        Raises:
            ConfigError: a choice matches no field.
        """
        if isinstance(choices, (str, Field, re.Pattern)):
            choices = [choices]
        chosen: set[str] = set()
        for choice in choices:
            if isinstance(choice, Field) and self.fields.get(choice.name) != choice:
                raise ConfigError(f"schema {self.name!r} has no such field: {choice!r:.200}")
            chosen.update(match_names(choice, list(self.fields)))
        return Schema(self.name, [field for field in self if field.name in chosen])

    # ------------------------------------------------------------------ as JSON

    def to_json(self) -> dict[str, Any]:
        """Plain data for :meth:`from_json`."""
        return {
            "version": _VERSION,
            "name": self.name,
            "fields": [field.to_json() for field in self],
        }

    @classmethod
    def from_json(cls, content: Any) -> Schema:
        """The schema that :meth:`to_json` described.

        Raises:
            DatasetFileCorruptError: the data is not a schema.
            ConfigError: a codec or dtype is unknown.
        """
        if not isinstance(content, dict) or not isinstance(content.get("fields"), list):
            raise DatasetFileCorruptError(f"not a schema of data_stack: {content!r:.80}")
        if content.get("version") != _VERSION:
            raise DatasetFileCorruptError(
                f"the schema {describe_format(content.get('version'), _VERSION)}"
            )
        return cls(
            str(content.get("name", "")), [Field.from_json(each) for each in content["fields"]]
        )

    def metadata(self) -> dict[bytes, bytes]:
        """The schema as key-value metadata of a file."""
        return {
            SCHEMA_KEY: json.dumps(self.to_json(), separators=(",", ":"), ensure_ascii=True).encode(
                "ascii"
            )
        }

    @classmethod
    def from_metadata(cls, metadata: Mapping[bytes, bytes] | None) -> Schema | None:
        """The schema in the key-value metadata of a file; None without one.

        Raises:
            DatasetFileCorruptError, ConfigError: as :meth:`from_json`.
        """
        stored = (metadata or {}).get(SCHEMA_KEY)
        if stored is None:
            return None
        try:
            content = parse_json(stored)
        except ValueError as error:
            raise DatasetFileCorruptError(
                f"the schema in the file's metadata is damaged: {error!s:.200}"
            ) from error
        return cls.from_json(content)


def match_names(choice: Any, names: Sequence[str]) -> list[str]:
    """The names that a choice of fields matches.

    Args:
        choice: a name, a regular expression of whole names, or a field.
        names: of all fields.

    Raises:
        ConfigError: the choice is something else, or matches no name.
    """
    choice = getattr(choice, "name", choice)
    if choice in names:
        return [choice]
    try:
        matches = [name for name in names if re.fullmatch(choice, name)]
    except (re.error, TypeError) as error:
        raise ConfigError(
            f"choose fields by name, regular expression or Field, not by {choice!r:.80}"
        ) from error
    if not matches:
        name = choice if isinstance(choice, str) else choice.pattern
        raise ConfigError(
            f"field {name!r:.60} does not exist{did_you_mean(name, names)}; "
            f"fields: {', '.join(names)}"
        )
    return matches
