"""The class of the fields of Petastorm's schemas."""

from __future__ import annotations

from typing import Any, NamedTuple


class UnischemaField(NamedTuple):
    """A field of a schema: the name and type of a column, and the codec of its values.

    Fields that only differ in their codec are equal.

    Attributes:
        name: name of the column.
        numpy_dtype: type of the values, or of the elements of arrays: a type of NumPy
            (``np.int64``, ``np.str_``), or ``Decimal``.
        shape: shape of each value: ``()`` for scalars; None in it stands for a size that differs
            from value to value.
        codec: encodes the values: a codec of :mod:`data_stack_petastorm.codecs` or of data_stack;
            None for Parquet's own types.
        nullable: whether a value may be None.
    """

    name: str
    numpy_dtype: Any
    shape: tuple[int | None, ...] = ()
    codec: Any = None
    nullable: bool | None = False

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, tuple) or len(other) != len(self):
            return False
        other_name, other_dtype, other_shape, _, other_nullable = other
        return (self.name, self.numpy_dtype, self.shape, self.nullable) == (
            other_name,
            other_dtype,
            other_shape,
            other_nullable,
        )

    def __ne__(self, other: object) -> bool:
        # Without this method, that of tuples would compare the codecs as well.
        return not self == other

    def __hash__(self) -> int:
        return hash((self.name, self.numpy_dtype, self.shape, self.nullable))


# Programs import the class from the module ``unischema``, as from Petastorm, and pickles name it by
# that module.
UnischemaField.__module__ = f"{__package__}.unischema"
