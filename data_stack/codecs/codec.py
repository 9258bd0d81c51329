"""The interface of codecs, which turn values into bytes and back.

To add a codec, add a module with a class to this package, decorated with
:func:`~data_stack.codecs.register_codec`. The functions at the end are for such modules.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from data_stack.exception import ConfigError, MissingDependencyError, RequestLimitError
from data_stack.util.program_lines import warn_deprecated
from data_stack.values.dtype_texts import parse_dtype

#: The kinds of media types whose files are stored and copied unchanged.
MEDIA_KINDS = ("image", "audio", "video")


@dataclass(frozen=True, init=False)
class ColumnType:
    """The type of a column's values.

    ::

        spec = {
            "image": ColumnType("jpg", shape=(None, None, 3)),
            "x": ColumnType("array", "float32", (64,)),
            "label": "i64",
        }
        with RecordWriter("train", spec) as writer: ...

    Attributes:
        type: the name of the codec, such as ``"array"`` or ``"zstd(json)"``. It is followed by
            ``[]`` if each sample has any number of values.
        dtype: the dtype of the values that are read. The writer refuses values that do not fit.
            None: any dtype.
        shape: the shape of each value, with None for a size that varies. None instead of a tuple:
            any shape.

    Raises:
        ConfigError: the dtype or shape is invalid.
    """

    type: str
    dtype: np.dtype[Any] | None
    shape: tuple[int | None, ...] | None

    def __init__(
        self,
        type: str,  # noqa: A002  # as Granular calls it
        dtype: npt.DTypeLike | None = None,
        shape: Sequence[int | None] | None = None,
    ) -> None:
        try:
            parsed_dtype = None if dtype is None else parse_dtype(dtype)
            parsed_shape = None if shape is None else _parse_shape(shape)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"column of type {type!r:.40}: invalid dtype {dtype!r:.80} or shape {shape!r:.80}"
            ) from error
        # Only this way are the attributes of a frozen dataclass set.
        object.__setattr__(self, "type", type)
        object.__setattr__(self, "dtype", parsed_dtype)
        object.__setattr__(self, "shape", parsed_shape)

    @property
    def is_sequence(self) -> bool:
        """Whether each sample has any number of values."""
        return self.type.endswith("[]")

    @property
    def codec_type(self) -> str:
        """The type without its ``[]``."""
        return self.type.removesuffix("[]")


def _parse_shape(shape: Sequence[int | None]) -> tuple[int | None, ...]:
    """Return a declared shape as a tuple of Python's integers.

    Raises:
        TypeError: a size is not an integer.
        ValueError: a size is negative.
    """
    sizes: list[int | None] = []
    for size in shape:
        if size is None:
            sizes.append(None)
            continue
        integer_size = operator.index(size)
        if integer_size < 0:
            raise ValueError("a size is negative")
        sizes.append(integer_size)
    return tuple(sizes)


@dataclass(frozen=True)
class FixedLayout:
    """The common layout of records of one size: a header, then an array in C order.

    Attributes:
        header: the bytes at the start of each record.
        dtype: the dtype of the stored array, including its byte order.
        shape: the shape of the stored array; ``()`` for a scalar.
    """

    header: bytes
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def record_bytes(self) -> int:
        """The size of each record in bytes."""
        return len(self.header) + self.dtype.itemsize * math.prod(self.shape)


class Codec(ABC):
    """Turns values into bytes and back.

    A codec has no state, so threads may share it. A codec pickles, and never executes code from
    the bytes that it reads. :meth:`encode` and :meth:`decode` are required. All other methods and
    attributes have defaults; :meth:`derive_layout` and :meth:`layout_of` let readers skip
    :meth:`decode`, which is faster.

    ::

        @register_codec
        class DegreesCodec(Codec):
            name = "degrees"
            extensions = ("deg",)

            def encode(self, value): return f"{value:+.3f}".encode()
            def decode(self, record): return float(record)

    Records, Parquet cells, and files of WebDataset and image folders all consist of such bytes.
    """

    #: The name in stored data; empty for a codec that is only passed as an object.
    name: str = ""
    #: The extensions of such files, without the dot; new files get the first one.
    extensions: tuple[str, ...] = ()
    #: The media type of such files, ``"image/png"``; None where the bytes are not a file.
    media_type: str | None = None
    #: Whether :meth:`decode` releases the GIL, so that threads decode in parallel.
    releases_gil: bool = False
    #: Whether a value may take far more memory than its bytes, as images do. The size of the
    #: value then counts towards the limit of a request, and the bytes are not compressed again.
    is_compressed: bool = False
    #: Whether the codec wraps another one, its argument ``inner``: ``zstd(json)``.
    wraps_codec: bool = False
    #: The deprecated name of :attr:`wraps_codec`.
    is_around: bool = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        _check_layout_methods(cls)
        _accept_deprecated_name(cls)

    @abstractmethod
    def encode(self, value: Any) -> bytes:
        """Encode ``value`` as a record.

        Raises:
            TypeError, ValueError, OverflowError: the codec cannot store ``value``; the message says
                what it can store.
        """

    @abstractmethod
    def decode(self, record: bytes) -> Any:
        """Decode ``record`` into a value that shares no memory with anything else.

        Raises:
            ValueError: the bytes are not a valid record. Readers treat any other exception, except
                MemoryError, in the same way.
            MemoryError: there is not enough memory for the value.
        """

    @property
    def is_media(self) -> bool:
        """Whether the bytes are a file of an image, of sound or of a video.

        Such a file may be stored and copied unchanged.
        """
        return media_kind(self.media_type) in MEDIA_KINDS

    @classmethod
    def recognizes(cls, start: bytes) -> bool:
        """Return whether a file may be of this format.

        Args:
            start: the first 16 bytes of the file; fewer if the file is shorter.
        """
        return False

    def adapt(self, column: ColumnType) -> Codec:
        """Return the codec for values of the dtype and shape of ``column``; usually itself.

        Raises:
            ConfigError: the codec cannot store such values.
        """
        return self

    def derive_layout(self, column: ColumnType) -> FixedLayout | None:
        """Return the common layout of all records of ``column``.

        A reader then takes the bytes behind the header for an array, without :meth:`decode`.
        None: the dtype and shape of the column do not imply one size.
        """
        return None

    def layout_of(self, record: bytes) -> FixedLayout | None:
        """Return the layout of one record; None if the record has no fixed layout."""
        return None

    @property
    def type_name(self) -> str:
        """The type of a column of such values.

        It is the name of the codec, or ``"zstd(json)"`` for a codec that wraps another one.
        """
        return self.name

    def to_json(self) -> dict[str, Any]:
        """Return plain data from which :func:`~data_stack.codecs.codec_from_json` makes this codec.

        The data are the name, and the options (fields of a dataclass) that differ from their
        defaults.

        Raises:
            ConfigError: the codec has no name, or JSON cannot hold an option.
        """
        if not self.name:
            raise ConfigError(
                f"{self!r:.80} has no name to store; set the name of its class, and register it"
            )
        options: dict[str, Any] = {}
        for name, value in self._options().items():
            if isinstance(value, Codec):
                options[name] = value.to_json()
            elif isinstance(value, (str, int, float, dict)):
                options[name] = value
            else:
                raise ConfigError(
                    f"JSON cannot hold {name}={value!r:.60} of the codec {self.name!r}"
                )
        if not options:
            return {"codec": self.name}
        return {"codec": self.name, "options": options}

    def _options(self) -> dict[str, Any]:
        """Return the options that differ from their defaults."""
        codec: Any = self
        if not is_dataclass(codec):
            return {}
        options = {}
        for option in fields(codec):
            default = option.default
            if option.default_factory is not MISSING:
                default = option.default_factory()
            value = getattr(codec, option.name)
            if value != default:
                options[option.name] = value
        return options

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self._options().items())
        return f"{type(self).__name__}({arguments})"


def _check_layout_methods(codec_class: type[Codec]) -> None:
    """Refuse a class that changes the records of its base, and inherits the layout of the old ones.

    A reader would take the bytes of such records for an array without calling ``decode``.

    Raises:
        TypeError: it is such a class.
    """
    own_names = vars(codec_class).keys()
    changes_records = "encode" in own_names or "decode" in own_names
    has_layout = codec_class.derive_layout is not Codec.derive_layout
    if changes_records and has_layout and "derive_layout" not in own_names:
        raise TypeError(
            f"{codec_class.__qualname__} changes the record, "
            "so it must also define derive_layout and layout_of"
        )


def _accept_deprecated_name(codec_class: type[Codec]) -> None:
    """Keep ``is_around``, the old name of ``wraps_codec``, in step with the new one."""
    if "is_around" in vars(codec_class):
        warn_deprecated(
            f"{codec_class.__qualname__}.is_around",
            instead="wraps_codec",
            since="0.2",
            removed_in="1.0",
        )
        codec_class.wraps_codec = codec_class.is_around
    else:
        codec_class.is_around = codec_class.wraps_codec


@dataclass(frozen=True, repr=False)
class FunctionCodec(Codec):
    """A codec that consists of two functions, as in Granular.

    The codec pickles if its functions do, so they must not be lambdas.

    Args:
        encode_function: returns the bytes of a value; None: values are bytes, and stored unchanged.
        decode_function: returns the value of bytes; None: the bytes are the value.
    """

    encode_function: Callable[[Any], bytes] | None = None
    decode_function: Callable[[bytes], Any] | None = None

    def encode(self, value: Any) -> bytes:
        record = value if self.encode_function is None else self.encode_function(value)
        if not isinstance(record, (bytes, bytearray, memoryview)):
            # bytes(5) would be five zeros.
            raise TypeError(f"{self} stores bytes, got {type(record).__name__}")
        return bytes(record)

    def decode(self, record: bytes) -> Any:
        if self.decode_function is None:
            return bytes(record)
        return self.decode_function(record)


#: Custom codecs by type: a Codec, a pair of functions (encode, decode), or None for raw bytes.
Codecs: TypeAlias = Mapping[
    str, Codec | tuple[Callable[[Any], bytes] | None, Callable[[bytes], Any] | None] | None
]

# ------------------------------------------------------------------ for modules of codecs


def media_kind(media_type: str | None) -> str:
    """Return the part of a media type before its slash, such as ``"image"``; ``""`` of None."""
    if media_type is None:
        return ""
    return media_type.partition("/")[0]


def fixed_shape(column: ColumnType) -> tuple[int, ...] | None:
    """Return the shape of a column's values; None if it is unknown, or if a size varies."""
    if column.shape is None:
        return None
    sizes = tuple(size for size in column.shape if size is not None)
    if len(sizes) < len(column.shape):
        return None
    return sizes


@functools.cache
def import_optional(module: str, user: str, package: str, extra: str) -> ModuleType:
    """Import a module on the first use of a codec.

    Args:
        module: the name of the module.
        user: what needs it, for the message: ``"a column of videos"``.
        package: the package that has the module.
        extra: the extra of data_stack that installs the package.

    Raises:
        MissingDependencyError: the package is not installed.
    """
    try:
        return importlib.import_module(module)
    except (ImportError, OSError) as error:
        # OSError: the package is installed, but not the C library that it calls.
        raise MissingDependencyError(user, package, extra) from error


@contextlib.contextmanager
def value_errors(
    problem: str, kinds: type[Exception] | tuple[type[Exception], ...] = Exception
) -> Iterator[None]:
    """Turn the errors that a library raises in the block into ValueError.

    RequestLimitError and MemoryError pass unchanged.

    Args:
        problem: what went wrong; the message begins with it.
        kinds: the errors of the library; others pass unchanged.

    Raises:
        ValueError: the block raised one of ``kinds``.
    """
    try:
        yield
    except (RequestLimitError, MemoryError):
        raise
    except kinds as error:
        raise ValueError(f"{problem}: {error!s:.200}") from error


def check_range(name: str, value: object, low: int, high: int = 1 << 62) -> None:
    """Check that an option is an integer in a range.

    Args:
        name: the option, for the message.
        value: what was passed; a boolean is not an integer.
        low: the smallest valid value.
        high: the largest valid value.

    Raises:
        ConfigError: ``value`` is not an integer, or out of range.
    """
    if type(value) is not int or not low <= value <= high:
        raise ConfigError(f"{name} must be an integer from {low} to {high}, got {value!r:.60}")
