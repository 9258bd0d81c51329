"""Defines the schema of a Parquet dataset: fields with a dtype, a shape and a codec."""

from __future__ import annotations

import functools
import json
import operator
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

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
SCHEMA_KEY: Final = b"data_stack.schema"

#: The version of the stored form.
_VERSION: Final = 1


@dataclass(frozen=True, init=False)
class Field(FieldLike):
    """Describes a column.

    ::

        Field("id", "int64")
        Field("image", "uint8", (None, None, 3), JpegCodec(quality=90))
        Field("price", Decimal, (), ScalarCodec("decimal(10,3)"), nullable=True)

    Attributes:
        name: name of the column.
        dtype: dtype of the values: a dtype of numpy (``str`` for text, ``bytes`` for bytes,
            ``object`` for structs, maps and nested lists), or ``decimal.Decimal``. The argument may
            be the name of a dtype.
        shape: shape of each value, with None for a size that differs; ``()`` for scalars.
        codec: how values are stored. It is an :class:`ArrowCodec` such as ``ScalarCodec()``, which
            stores them in types of Parquet, or any :class:`~data_stack.codecs.Codec`, which stores
            them as bytes. The argument may be the name of a codec (``"zstd(json)"``). Default:
            an ArrowCodec for scalars and lists, ``NdarrayCodec`` for other arrays.
        nullable: whether a value may be missing; False by default.

    Raises:
        ConfigError: name, dtype or shape is invalid, or the codec cannot hold such values.
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
        if type(name) is not str or not name:
            raise ConfigError(f"the name of a field must be a non-empty string, got {name!r:.60}")
        try:
            checked_dtype = check_dtype(dtype)
        except ConfigError as error:
            raise ConfigError(f"field {name!r}: {error}") from error
        # Only this way are the attributes of a frozen dataclass set. The codec is chosen by the
        # others, so it is set last.
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "dtype", checked_dtype)
        object.__setattr__(self, "shape", _check_shape(name, shape))
        object.__setattr__(self, "nullable", bool(nullable))
        object.__setattr__(self, "codec", choose_codec(self, codec))
        self.arrow_type()  # raises if the codec cannot hold such values

    @functools.cached_property
    def cells(self) -> ArrowCodec:
        """The codec that encodes and decodes the cells of the Parquet column.

        It is :attr:`codec`, or, if that makes bytes, the one that stores these.
        """
        if isinstance(self.codec, ArrowCodec):
            return self.codec
        return BinaryCells(self.codec, self)

    def arrow_type(self) -> pa.DataType:
        """Return Arrow's type of the Parquet column.

        Raises:
            ConfigError: the codec cannot hold values of the dtype and shape.
        """
        try:
            return self.cells.arrow_type(self)
        except ConfigError as error:
            raise ConfigError(f"field {self.name!r}: {error}") from error

    def to_json(self) -> dict[str, Any]:
        """Return plain data from which :meth:`from_json` makes the field again."""
        content: dict[str, Any] = {
            "name": self.name,
            "dtype": dtype_name(self.dtype),
            "shape": list(self.shape),
        }
        # "codec", and the options of the codec
        content.update(self.codec.to_json())
        content["nullable"] = self.nullable
        return content

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Field:
        """Return the field that :meth:`to_json` described.

        Args:
            content: the plain data, which may be a stranger's.

        Raises:
            ConfigError: it lacks a key; or name, dtype, shape or codec is invalid.
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
    """Return the shape of a field as a tuple.

    Raises:
        ConfigError: it is not a sequence of sizes and None.
    """
    sizes: list[int | None] = []
    try:
        for size in shape:
            if size is None:
                sizes.append(None)
            else:
                sizes.append(operator.index(size))
    except TypeError as error:
        raise ConfigError(
            f"the shape of field {name!r} must be a tuple of sizes and None, got {shape!r:.80}"
        ) from error
    if any(size is not None and size < 0 for size in sizes):
        raise ConfigError(f"the shape of field {name!r} has a negative size: {shape!r:.80}")
    return tuple(sizes)


class Schema:
    """Holds the fields of a dataset, in their order.

    It behaves as a sequence of fields; ``schema[name]`` and ``name in schema`` take their names.

    ::

        schema = Schema(
            "frames",
            [Field("id", "int64"), Field("image", "uint8", (None, None, 3), PngCodec())],
        )
        schema["image"].shape
        schema.view(["id", "image.*"])       # by name or regular expression

    Args:
        name: any name for the schema, which need not be unique.
        fields: the fields; each has another name.

    Attributes:
        name: the name of the schema.
        fields: the fields by name.

    Raises:
        ConfigError: two fields have the same name, or an item is not a Field.
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
        """Return a field.

        Raises:
            ConfigError: there is no field of this name.
        """
        if name not in self:
            suggestion = did_you_mean(name, self.fields)
            known = ", ".join(self.fields)
            raise ConfigError(
                f"schema {self.name!r} has no field {name!r:.60}{suggestion}; it has: {known:.300}"
            )
        return self.fields[name]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self.fields

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields.values())

    def __len__(self) -> int:
        return len(self.fields)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schema):
            return False
        return self.name == other.name and list(self) == list(other)

    def __hash__(self) -> int:
        # The options of a codec may not be hashable. So only the names of the fields are hashed.
        return hash((self.name, tuple(self.fields)))

    def __repr__(self) -> str:
        lines = "".join(f"\n    {field!r}," for field in self)
        return f"Schema({self.name!r}, [{lines}\n])"

    def view(self, choices: Iterable[str | Field | re.Pattern[str]]) -> Schema:
        """Return the schema of some of the fields, in the order of this schema.

        Args:
            choices: names, regular expressions, or fields of this schema; or one of these. Text is
                a name if a field has it, else a regular expression. An expression chooses all
                fields whose whole name it matches.

        Raises:
            ConfigError: a choice matches no field, or is none.
        """
        if isinstance(choices, (str, Field, re.Pattern)):
            choices = [choices]
        if not isinstance(choices, Iterable):
            raise ConfigError(
                f"choose fields by a list of names, regular expressions or Fields, "
                f"not by {choices!r:.80}"
            )
        chosen: set[str] = set()
        for choice in choices:
            if isinstance(choice, Field) and self.fields.get(choice.name) != choice:
                raise ConfigError(f"schema {self.name!r} has no such field: {choice!r:.200}")
            chosen.update(match_names(choice, list(self.fields)))
        return Schema(self.name, [field for field in self if field.name in chosen])

    # ------------------------------------------------------------------ as JSON

    def to_json(self) -> dict[str, Any]:
        """Return plain data from which :meth:`from_json` makes the schema again."""
        return {
            "version": _VERSION,
            "name": self.name,
            "fields": [field.to_json() for field in self],
        }

    @classmethod
    def from_json(cls, content: Any) -> Schema:
        """Return the schema that :meth:`to_json` described.

        Args:
            content: the plain data, which may be a stranger's.

        Raises:
            DatasetFileCorruptError: the data is not a schema, or one of another version.
            ConfigError: a field is invalid, or has an unknown codec.
        """
        if not isinstance(content, dict) or not isinstance(content.get("fields"), list):
            raise DatasetFileCorruptError(f"not a schema of data_stack: {content!r:.80}")
        version = content.get("version")
        if version != _VERSION:
            raise DatasetFileCorruptError(f"the schema {describe_format(version, _VERSION)}")
        name = str(content.get("name", ""))
        fields = [Field.from_json(field_content) for field_content in content["fields"]]
        return cls(name, fields)

    def metadata(self) -> dict[bytes, bytes]:
        """Return the schema as key-value metadata of a file."""
        text = json.dumps(self.to_json(), separators=(",", ":"), ensure_ascii=True)
        return {SCHEMA_KEY: text.encode("ascii")}

    @classmethod
    def from_metadata(cls, metadata: Mapping[bytes, bytes] | None) -> Schema | None:
        """Return the schema in the key-value metadata of a file; None without one.

        Args:
            metadata: the metadata; None if the file has none.

        Raises:
            DatasetFileCorruptError, ConfigError: as :meth:`from_json`.
        """
        if metadata is None or SCHEMA_KEY not in metadata:
            return None
        try:
            content = parse_json(metadata[SCHEMA_KEY])
        except ValueError as error:
            raise DatasetFileCorruptError(
                f"the schema in the file's metadata is damaged: {error!s:.200}"
            ) from error
        return cls.from_json(content)


def match_names(choice: Any, names: Sequence[str]) -> list[str]:
    """Return the names that a choice of fields matches.

    Args:
        choice: a field (any object with a ``name``, such as Petastorm's), a name, or a regular
            expression. Text is a name if it is one of ``names``, else a regular expression. An
            expression matches whole names.
        names: the names of all fields.

    Raises:
        ConfigError: the choice is something else, or matches no name.
    """
    choice = getattr(choice, "name", choice)
    if isinstance(choice, str) and choice in names:
        return [choice]
    try:
        expression = re.compile(choice)
        matches = [name for name in names if expression.fullmatch(name)]
    except (re.error, TypeError, OverflowError, RecursionError) as error:
        # OverflowError: of a repetition such as "a{99999999999}"; RecursionError: of many brackets
        raise ConfigError(
            f"choose fields by name, regular expression or Field, not by {choice!r:.80}"
        ) from error
    if not matches:
        text = expression.pattern
        raise ConfigError(
            f"field {text!r:.60} does not exist{did_you_mean(text, names)}; "
            f"fields: {', '.join(names)}"
        )
    return matches
