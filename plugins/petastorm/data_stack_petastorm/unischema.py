"""Schemas in Petastorm's spelling: what its programs declare stays as it is, but for the import."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy.typing as npt

from data_stack.codecs import Codec
from data_stack.formats.parquet import ArrowCodec, Field, Schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["Unischema", "UnischemaField"]


class Unischema(Schema):
    """A :class:`~data_stack.formats.parquet.schema.Schema` whose fields are attributes too.

    ::

        Frames = Unischema("Frames", [
            UnischemaField("id", np.int64, (), ScalarCodec(LongType()), False),
            UnischemaField("image", np.uint8, (32, 16, 3), CompressedImageCodec("png"), False),
        ])
        make_reader(url, schema_fields=[Frames.id])

    A field that is called as something that schemas have (``name``, ``fields``, ``view`` …) is ``schema["name"]`` only.
    """

    def __getattr__(self, name: str) -> Field:
        # of an object that is being unpickled, there is no field yet, and nothing else that begins like this
        if name.startswith("_") or name not in self.fields:
            raise AttributeError(f"{type(self).__name__} has no attribute and no field {name!r}")
        return self.fields[name]

    def create_schema_view(self, fields: Iterable[str | Field | re.Pattern[str]]) -> Unischema:
        """The schema ``<name>_view`` of some fields, by names, regular expressions of whole names, or fields with such names.

        Raises:
            ConfigError: one of them matches no field.
        """
        view = self.view(each.name if isinstance(each, Field) else each for each in fields)
        return Unischema(f"{self.name}_view", view)

    def as_spark_schema(self) -> StructType:
        """The columns of a DataFrame that holds the cells; it needs the package datastack-spark."""
        from data_stack_spark import spark_schema

        return spark_schema(self)


def UnischemaField(  # noqa: N802  # as Petastorm calls it
    name: str,
    numpy_dtype: npt.DTypeLike | type[Decimal],
    shape: Sequence[int | None] = (),
    codec: Codec | ArrowCodec | str | None = None,
    nullable: bool = False,
) -> Field:
    """A :class:`~data_stack.formats.parquet.schema.Field` by Petastorm's arguments.

    Raises:
        ConfigError: as for ``Field``.
    """
    return Field(name, numpy_dtype, shape, codec, nullable)
