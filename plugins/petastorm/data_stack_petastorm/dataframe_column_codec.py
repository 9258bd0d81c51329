"""The base class of Petastorm's codecs, from which programs derive codecs of their own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from data_stack.exception import ConfigError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

#: The codec classes of users that this process has imported, by module and name.
user_codecs: dict[str, type[DataframeColumnCodec]] = {}


class DataframeColumnCodec(ABC):
    """Encodes the values of a field as cells of a column, and decodes the cells.

    To make a codec of your own, define a class at the top of a module. Its attributes must be plain
    data: numbers, text, lists, dicts, arrays, types of numpy and Spark. A dataset stores the name
    of the class and the attributes. Import the class before you read the dataset: data_stack never
    imports or runs what a dataset names.
    """

    def __init_subclass__(cls, **class_arguments: Any) -> None:
        """Register the class for :func:`restore_codec`, unless it is one of this package."""
        super().__init_subclass__(**class_arguments)
        package_of_class = cls.__module__.rpartition(".")[0]
        if package_of_class != __package__:
            user_codecs[class_name(cls)] = cls

    @abstractmethod
    def encode(self, unischema_field: Any, value: Any) -> Any:
        """Return the cell for a value.

        Args:
            unischema_field: the :class:`UnischemaField` of the value.
            value: the value; never None.

        Returns:
            A value of Python of the type :meth:`spark_dtype`.
        """

    @abstractmethod
    def decode(self, unischema_field: Any, value: Any) -> Any:
        """Return the value of a cell.

        Args:
            unischema_field: the :class:`UnischemaField` of the value.
            value: the cell; never None.
        """

    @abstractmethod
    def spark_dtype(self) -> DataType:
        """Return the type of the column: one of :mod:`pyspark.sql.types`, or its name."""

    def __str__(self) -> str:
        return f"{type(self).__name__}()"


def class_name(codec_class: type) -> str:
    """Return the name of a class with its module, as it is stored in datasets."""
    return f"{codec_class.__module__}.{codec_class.__qualname__}"


def restore_codec(name: str, attributes: Mapping[str, Any]) -> DataframeColumnCodec:
    """Return a codec of a user's class with these attributes; its constructor is not called.

    Args:
        name: module and name of the class.
        attributes: the attributes by name.

    Raises:
        ConfigError: the class was not imported.
    """
    codec_class = user_codecs.get(name)
    if codec_class is None:
        raise ConfigError(
            f"the class of the codec {name!r:.200} was not imported: import its module before you "
            "read"
        )
    codec = object.__new__(codec_class)
    codec.__dict__.update(attributes)
    return codec
