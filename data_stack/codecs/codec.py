"""The interface of codecs, which turn values into bytes and back."""

from __future__ import annotations

import functools
import importlib
import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.exception import ConfigError, DatasetFileCorruptError, MissingDependencyError, RequestLimitError
from data_stack.util.request_limit import current_request


@dataclass(frozen=True, init=False)
class Column:
    """The type of a column's values.

    ::

        spec = {"image": Column("jpg", shape=(None, None, 3)), "x": Column("array", "float32", (64,)), "label": "i64"}
        with RecordWriter("train", spec) as writer: ...

    Attributes:
        type: name of the codec, such as ``"array"`` or ``"zstd(json)"``; followed by ``[]`` if each sample has any number of
            values.
        dtype: dtype of the values that are read; the writer refuses values that do not fit. None for any.
        shape: shape of each value, with None for a size that varies; None instead of a tuple for any.

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
            sizes = None if shape is None else tuple(None if size is None else operator.index(size) for size in shape)
            if sizes is not None and any(size is not None and size < 0 for size in sizes):
                raise ValueError("a size is negative")
            kind = None if dtype is None else np.dtype(dtype)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"column of type {type!r:.40}: invalid dtype {dtype!r:.80} or shape {shape!r:.80}") from error
        for name, value in (("type", type), ("dtype", kind), ("shape", sizes)):
            object.__setattr__(self, name, value)

    @property
    def is_sequence(self) -> bool:
        """Whether each sample has any number of values."""
        return self.type.endswith("[]")

    @property
    def codec_type(self) -> str:
        """The type without its ``[]``."""
        return self.type.removesuffix("[]")


@dataclass(frozen=True)
class FixedLayout:
    """The common layout of records of one size: a header, then an array in C order.

    Attributes:
        header: the bytes at the start of each record.
        dtype: dtype of the stored array, including byte order.
        shape: shape of the stored array; ``()`` for a scalar.
    """

    header: bytes
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def record_bytes(self) -> int:
        """Size of each record."""
        return len(self.header) + self.dtype.itemsize * math.prod(self.shape)


class Codec(ABC):
    """Turns values into bytes and back.

    A codec has no state, so threads may share it; it pickles, and never executes code from the bytes it reads. Two methods are
    required; the others make it fast.

    ::

        @register_codec
        class DegreesCodec(Codec):
            name, extensions = "degrees", ("deg",)

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
    #: Whether a value may take far more memory than its bytes, as images do: its size then counts towards the limit of a
    #: request, and the bytes are not compressed again.
    is_compressed: bool = False
    #: Whether it wraps another codec, its argument ``inner``: ``zstd(json)``.
    is_around: bool = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = vars(cls)
        if cls.derive_layout is not Codec.derive_layout and own.keys() & {"encode", "decode"} and "derive_layout" not in own:
            raise TypeError(f"{cls.__qualname__} changes the record, so it must also define derive_layout and layout_of")

    @abstractmethod
    def encode(self, value: Any) -> bytes:
        """Encode ``value`` as a record.

        Raises:
            TypeError, ValueError, OverflowError: the codec cannot store ``value``; the message says what it can store.
        """

    @abstractmethod
    def decode(self, record: bytes) -> Any:
        """Decode ``record`` into a value that shares no memory with anything else.

        Raises:
            ValueError: the bytes are not a valid record; other exceptions are treated like it.
            MemoryError: there is not enough memory for the value.
        """

    @property
    def is_media(self) -> bool:
        """Whether the bytes are a file of an image, of sound or of a video, which may be stored and copied unchanged."""
        return self.media_type is not None and self.media_type.partition("/")[0] in ("image", "audio", "video")

    @classmethod
    def recognizes(cls, start: bytes) -> bool:
        """Whether a file that begins with these 16 bytes may be of this format."""
        return False

    def adapt(self, column: Column) -> Codec:
        """The codec for values of the dtype and shape of ``column``; usually itself.

        Raises:
            ConfigError: the codec cannot store such values.
        """
        return self

    @property
    def type_name(self) -> str:
        """The type of a column of such values: the name; ``"zstd(json)"`` for a codec around another."""
        return self.name

    def to_json(self) -> dict[str, Any]:
        """Plain data from which :func:`~data_stack.codecs.codec_from_json` makes the same codec.

        The data are its name, and the options (fields of a dataclass) that differ from their defaults.

        Raises:
            ConfigError: the codec has no name, or JSON cannot hold an option.
        """
        if not self.name:
            raise ConfigError(f"{self!r:.80} has no name to store; set the name of its class, and register it")
        options = {}
        for name, value in self._options().items():
            options[name] = value.to_json() if isinstance(value, Codec) else value
            if not isinstance(value, (Codec, str, int, float, dict)):
                raise ConfigError(f"JSON cannot hold {name}={value!r:.60} of the codec {self.name!r}")
        return {"codec": self.name, "options": options} if options else {"codec": self.name}

    def _options(self) -> dict[str, Any]:
        """The options that differ from their defaults."""
        own: Any = self
        known = {each.name: each for each in fields(own)} if is_dataclass(own) else {}
        return {name: getattr(self, name) for name, each in known.items() if getattr(self, name) != _default(each)}

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._options().items())})"

    def derive_layout(self, column: Column) -> FixedLayout | None:
        """The common layout of all records of ``column``, if its dtype and shape imply one size; None otherwise."""
        return None

    def layout_of(self, record: bytes) -> FixedLayout | None:
        """The layout of one record; None if it has no fixed layout."""
        return None


@functools.cache
def import_optional(module: str, user: str, package: str, extra: str) -> ModuleType:
    """Import a module on the first use of a codec.

    Raises:
        MissingDependencyError: it is not installed; ``user`` needs ``package``, which the extra ``extra`` installs.
    """
    try:
        return importlib.import_module(module)
    except (ImportError, OSError) as error:  # OSError: the package is installed, the C library below it is not
        raise MissingDependencyError(user, package, extra) from error


def decode_file(codec: Codec, data: bytes, name: str, hint: str = "") -> Any:
    """Decode the file ``name``; its value counts towards the limit of the current request.

    Raises:
        RequestLimitError: the request decodes too much.
        DatasetFileCorruptError: the codec refuses the bytes; the message ends with ``hint``.
    """
    try:
        value = codec.decode(data)
        if codec.is_compressed:
            current_request().add(value)
        return value
    except RequestLimitError as error:
        raise error.at(name) from error
    except MemoryError:
        raise  # which is not the fault of the file
    except Exception as error:  # a codec may raise anything
        raise DatasetFileCorruptError(f"{name} cannot be decoded: {type(error).__name__}: {str(error)[:300]}{hint}") from error


def check_range(name: str, value: object, low: int, high: int = 1 << 62) -> None:
    """Check that an option is an integer in a range.

    Raises:
        ConfigError: it is not.
    """
    if type(value) is not int or not low <= value <= high:
        raise ConfigError(f"{name} must be an integer from {low} to {high}, got {value!r:.60}")


@dataclass(frozen=True, repr=False)
class FunctionCodec(Codec):
    """Two functions as a codec, as in Granular; None is the identity on bytes.

    It pickles if its functions do, so they must not be lambdas.
    """

    encode_function: Callable[[Any], bytes] | None = None
    decode_function: Callable[[bytes], Any] | None = None

    def encode(self, value: Any) -> bytes:
        record = value if self.encode_function is None else self.encode_function(value)
        if not isinstance(record, (bytes, bytearray, memoryview)):
            # bytes(5) would be five zeros
            raise TypeError(f"{self} stores bytes, got {type(record).__name__}")
        return bytes(record)

    def decode(self, record: bytes) -> Any:
        return bytes(record) if self.decode_function is None else self.decode_function(record)

    def __repr__(self) -> str:
        names = (getattr(each, "__qualname__", None) for each in (self.encode_function, self.decode_function))
        return f"FunctionCodec({', '.join(map(str, names))})"


def _default(option: Field[Any]) -> Any:
    return option.default if option.default_factory is MISSING else option.default_factory()
