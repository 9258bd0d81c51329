"""What a codec is: values as bytes, and back."""

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
    """What a column holds.

    ::

        spec = {"image": Column("jpg", shape=(None, None, 3)), "x": Column("array", "float32", (64,)), "label": "i64"}
        with RecordWriter("train", spec) as writer: ...

    Attributes:
        type: name of the codec, such as ``"array"`` or ``"zstd(json)"``; with ``[]`` behind it, each sample has any number of
            such values.
        dtype: of the values as they are handed out; what it cannot hold is refused when written. None: any.
        shape: of each value, None for a size that differs from value to value; None instead of a tuple: any.

    Raises:
        ConfigError: there is no such dtype or shape.
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
            raise ConfigError(
                f"a column of type {type!r:.40} needs a dtype of numpy and a tuple of sizes, got {dtype!r:.80} and {shape!r:.80}"
            ) from error
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
    """Records of one size that differ in their values alone: a header, then an array in C order.

    Attributes:
        header: the bytes that each record begins with.
        dtype: of the stored array, byte order included.
        shape: of the stored array; ``()`` for a scalar.
    """

    header: bytes
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def record_bytes(self) -> int:
        """Size of each record."""
        return len(self.header) + self.dtype.itemsize * math.prod(self.shape)


class Codec(ABC):
    """Turns values into bytes, and these into the values again.

    A codec has no state, so threads may share it; it pickles, and never executes what it reads. Two methods are required; the
    others make it fast.

    ::

        @register_codec
        class DegreesCodec(Codec):
            name, extensions = "degrees", ("deg",)

            def encode(self, value): return f"{value:+.3f}".encode()
            def decode(self, record): return float(record)

    Records, cells of Parquet, files of WebDataset and of folders of images are all such bytes.
    """

    #: Its name in stored data; empty for a codec that is only passed as an object.
    name: str = ""
    #: The extensions of such files, without the dot; new files get the first one.
    extensions: tuple[str, ...] = ()
    #: The media type of such files, ``"image/png"``; None where the bytes are not a file.
    media_type: str | None = None
    #: Whether :meth:`decode` releases the GIL, so that threads decode in parallel.
    releases_gil: bool = False
    #: Whether a value may take far more memory than its bytes, as images do: its size then counts for the limit of a request,
    #: and the bytes are not compressed again.
    is_compressed: bool = False
    #: Whether it wraps another codec, its argument ``inner``: ``zstd(json)``.
    is_around: bool = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = vars(cls)
        if cls.derive_layout is not Codec.derive_layout and own.keys() & {"encode", "decode"} and "derive_layout" not in own:
            raise TypeError(f"{cls.__qualname__} changes what a record is: it has to define derive_layout and layout_of, too")

    @abstractmethod
    def encode(self, value: Any) -> bytes:
        """The record of ``value``.

        Raises:
            TypeError, ValueError, OverflowError: it is nothing that this codec stores; the message says what is.
        """

    @abstractmethod
    def decode(self, record: bytes) -> Any:
        """The value of ``record``, the caller's own: changing it changes nothing else.

        Raises:
            ValueError: the bytes are not a valid record; any other exception counts as the same.
            MemoryError: there is not enough memory for the value, which says nothing of the record.
        """

    @property
    def is_media(self) -> bool:
        """Whether the bytes are a file of an image, of sound or of a video, which may be stored and copied as they are."""
        return self.media_type is not None and self.media_type.partition("/")[0] in ("image", "audio", "video")

    @classmethod
    def recognizes(cls, start: bytes) -> bool:
        """Whether a file that begins with these 16 bytes may be of this kind."""
        return False

    def adapt(self, column: Column) -> Codec:
        """The codec for values of the dtype and shape of ``column``; usually itself.

        Raises:
            ConfigError: it has no such values.
        """
        return self

    @property
    def type_name(self) -> str:
        """The type of a column of such values: its name, for one around another such as ``"zstd(json)"``."""
        return self.name

    def to_json(self) -> dict[str, Any]:
        """Plain data from which :func:`~data_stack.codecs.codec_from_json` makes the same codec.

        Its name, and those options (fields of a dataclass) that differ from their defaults.

        Raises:
            ConfigError: it has no name, or an option that is no plain data.
        """
        if not self.name:
            raise ConfigError(f"{self!r:.80} cannot be stored by name: give its class a name, and register it")
        options = {}
        for name, value in self._options().items():
            options[name] = value.to_json() if isinstance(value, Codec) else value
            if not isinstance(value, (Codec, str, int, float, dict)):
                raise ConfigError(f"{name}={value!r:.60} of the codec {self.name!r} is nothing that JSON holds")
        return {"codec": self.name, "options": options} if options else {"codec": self.name}

    def _options(self) -> dict[str, Any]:
        """What it was made with, as far as that differs from the defaults."""
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
        """The common layout of all records of ``column``, if its dtype and shape give them one size; else None."""
        return None

    def layout_of(self, record: bytes) -> FixedLayout | None:
        """The layout of one record; None if it has no fixed layout."""
        return None


@functools.cache
def import_optional(module: str, user: str, package: str, extra: str) -> ModuleType:
    """Import a module that a codec needs when it is first used.

    Raises:
        MissingDependencyError: it is not installed; ``user`` needs ``package``, which the extra ``extra`` brings.
    """
    try:
        return importlib.import_module(module)
    except (ImportError, OSError) as error:  # OSError: the package is installed, the C library below it is not
        raise MissingDependencyError(user, package, extra) from error


def decode_file(codec: Codec, data: bytes, name: str, hint: str = "") -> Any:
    """The value of a file called ``name``, which counts for the limit of the current request.

    Raises:
        RequestLimitError: the request decodes too much.
        DatasetFileCorruptError: the codec refuses the bytes; ``hint`` says what to do.
    """
    try:
        value = codec.decode(data)
        if codec.is_compressed:
            current_request().add(value)
        return value
    except RequestLimitError as error:
        raise error.at(name) from error
    except MemoryError:
        raise  # which says nothing of the file
    except Exception as error:  # a codec may raise anything
        raise DatasetFileCorruptError(f"{name} cannot be decoded: {type(error).__name__}: {str(error)[:300]}{hint}") from error


def check_range(name: str, value: object, low: int, high: int = 1 << 62) -> None:
    """Refuse an option that is no integer between two others.

    Raises:
        ConfigError: it is something else.
    """
    if type(value) is not int or not low <= value <= high:
        raise ConfigError(f"{name} is a number from {low} to {high}, not {value!r:.60}")


@dataclass(frozen=True, repr=False)
class FunctionCodec(Codec):
    """Two functions as a codec, as in Granular; None stands for the identity on bytes.

    It pickles if its functions do: those of a module, no lambdas.
    """

    encode_function: Callable[[Any], bytes] | None = None
    decode_function: Callable[[bytes], Any] | None = None

    def encode(self, value: Any) -> bytes:
        record = value if self.encode_function is None else self.encode_function(value)
        if not isinstance(record, (bytes, bytearray, memoryview)):
            # bytes(5) would be five zeros
            raise TypeError(f"a column of {self} stores bytes, not {type(record).__name__}")
        return bytes(record)

    def decode(self, record: bytes) -> Any:
        return bytes(record) if self.decode_function is None else self.decode_function(record)

    def __repr__(self) -> str:
        names = (getattr(each, "__qualname__", None) for each in (self.encode_function, self.decode_function))
        return f"FunctionCodec({', '.join(map(str, names))})"


def _default(option: Field[Any]) -> Any:
    return option.default if option.default_factory is MISSING else option.default_factory()
