"""The interface of codecs, which turn values into bytes and back, and how they are found: by name, file extension or first bytes.

Each codec registers itself by a decorator, and a search imports all modules of the package: to add a codec, add one module with a
class. Programs register codecs in the same way; those of plugins come from the hook ``data_stack_codecs``.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import math
import operator
import pkgutil
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from data_stack.exception import (
    ConfigError,
    DatasetFileCorruptError,
    MissingDependencyError,
    RequestLimitError,
)
from data_stack.io.stand_ins import HEAD_BYTES, check_no_stand_in
from data_stack.util.providers import import_providers
from data_stack.util.request_limit import current_request
from data_stack.util.suggestions import did_you_mean


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
            sizes = (
                None
                if shape is None
                else tuple(None if size is None else operator.index(size) for size in shape)
            )
            if sizes is not None and any(size is not None and size < 0 for size in sizes):
                raise ValueError("a size is negative")
            kind = None if dtype is None else np.dtype(dtype)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"column of type {type!r:.40}: invalid dtype {dtype!r:.80} or shape {shape!r:.80}"
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
        if (
            cls.derive_layout is not Codec.derive_layout
            and own.keys() & {"encode", "decode"}
            and "derive_layout" not in own
        ):
            raise TypeError(
                f"{cls.__qualname__} changes the record, so it must also define derive_layout and layout_of"
            )

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
        return self.media_type is not None and self.media_type.partition("/")[0] in (
            "image",
            "audio",
            "video",
        )

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
            raise ConfigError(
                f"{self!r:.80} has no name to store; set the name of its class, and register it"
            )
        options = {}
        for name, value in self._options().items():
            options[name] = value.to_json() if isinstance(value, Codec) else value
            if not isinstance(value, (Codec, str, int, float, dict)):
                raise ConfigError(
                    f"JSON cannot hold {name}={value!r:.60} of the codec {self.name!r}"
                )
        return {"codec": self.name, "options": options} if options else {"codec": self.name}

    def _options(self) -> dict[str, Any]:
        """The options that differ from their defaults."""
        own: Any = self
        options: Sequence[Field[Any]] = fields(own) if is_dataclass(own) else ()
        defaults = {
            each.name: each.default if each.default_factory is MISSING else each.default_factory()
            for each in options
        }
        return {
            name: getattr(self, name)
            for name, default in defaults.items()
            if getattr(self, name) != default
        }

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
    except (
        ImportError,
        OSError,
    ) as error:  # OSError: the package is installed, the C library below it is not
        raise MissingDependencyError(user, package, extra) from error


@contextlib.contextmanager
def value_errors(
    problem: str, kinds: type[Exception] | tuple[type[Exception], ...] = Exception
) -> Iterator[None]:
    """Raise errors of a library as ValueError; not those of memory, nor of the limit of a request."""
    try:
        yield
    except (RequestLimitError, MemoryError):
        raise
    except kinds as error:
        raise ValueError(f"{problem}: {error!s:.200}") from error


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
        check_no_stand_in(bytes(data[:HEAD_BYTES]), name, len(data))
        raise DatasetFileCorruptError(
            f"{name} cannot be decoded: {type(error).__name__}: {str(error)[:300]}{hint}"
        ) from error


def codec_of_content(data: bytes, type_name: str, codecs: Codecs | None = None) -> Codec:
    """The codec of a picture or recording: the content decides, as many files have the suffix of another format.

    Args:
        data: the file.
        type_name: the type by the suffix of its name, such as ``"jpg"``; used where the content is of no known type.
        codecs: custom codecs by type.

    Raises:
        ValueError: the file is empty.
    """
    if not data:
        raise ValueError("the file is empty: it has 0 bytes")
    content = type_of_bytes(data[:16])
    kind_by_suffix = _kind_of_media(type_name)
    kind_by_content = _kind_of_media(content)
    if content is not None and kind_by_suffix is not None and kind_by_suffix == kind_by_content:
        return codec_of(content, codecs)
    return codec_of(type_name, codecs)


def _kind_of_media(type_name: str | None) -> str | None:
    """``"image"``, ``"audio"`` or ``"video"``; None for other types."""
    codec_class = registered_types().get(type_name or "")
    kind = str(getattr(codec_class, "media_type", None) or "").partition("/")[0]
    return kind if kind in ("image", "audio", "video") else None


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


#: Custom codecs by type: a Codec, a pair of functions (encode, decode), or None for raw bytes.
Codecs: TypeAlias = Mapping[
    str, Codec | tuple[Callable[[Any], bytes] | None, Callable[[bytes], Any] | None] | None
]

_CodecClass = TypeVar("_CodecClass", bound=type[Codec])

_MAX_NESTING = 8
_classes: dict[str, type[Codec]] = {}


def register_codec(codec_class: _CodecClass) -> _CodecClass:
    """Register a codec by its ``name`` and ``extensions``; a class decorator.

    The class must work without arguments, except ``inner`` if it wraps another codec.

    Raises:
        ConfigError: the name is invalid, or another class has it.
    """
    name = codec_class.name
    if not re.fullmatch(r"[a-z_][A-Za-z0-9_.-]*", name, re.ASCII):
        raise ConfigError(
            f"{codec_class.__qualname__}.name must be a name such as 'dicom', got {name!r:.60}"
        )
    known = _classes.setdefault(name, codec_class)
    if (known.__module__, known.__qualname__) != (codec_class.__module__, codec_class.__qualname__):
        raise ConfigError(
            f"the name {name!r} is already registered for {known.__module__}.{known.__qualname__}"
        )
    _classes[name] = codec_class
    return codec_class


def registered_types() -> Mapping[str, type[Codec]]:
    """The registered classes by name, including those of this package, which import no heavy package."""
    _import_own()
    return _classes


def codec_of(type: str, codecs: Codecs | None = None) -> Codec:  # noqa: A002  # as Granular calls it
    """The codec of a column's type, such as ``"array"`` or ``"zstd(json)"``; a ``[]`` at the end is ignored.

    Args:
        type: the name; ``zstd(...)`` wraps any other.
        codecs: custom codecs by type, which take precedence over registered ones; those of plugins come last.

    Raises:
        ConfigError: the type is unknown, or its entry in ``codecs`` is not a codec.
        MissingDependencyError: it needs a package that is not installed.
    """
    return _codec_of(type.removesuffix("[]"), codecs or {}, 0)


def with_provided_codecs(types: Iterable[str], codecs: Codecs | None) -> Codecs | None:
    """The custom codecs of a reader with those of plugins, which are asked only if one of the types is unknown."""
    inner = {kind.removesuffix("[]").rpartition("(")[2].rstrip(")") for kind in types}
    return (
        {**find_provided_codecs(), **(codecs or {})}
        if inner - registered_types().keys() - {*(codecs or ())}
        else codecs
    )


def codec_from_json(content: Any, _nesting: int = 0) -> Codec:
    """The codec that :meth:`Codec.to_json` described.

    Raises:
        ConfigError: the codec or one of its options is unknown.
        MissingDependencyError: as for :func:`codec_of`.
    """
    name, options = (
        (content.get("codec"), content.get("options", {}))
        if isinstance(content, Mapping)
        else (None, None)
    )
    if not isinstance(name, str) or not isinstance(options, Mapping) or _nesting > _MAX_NESTING:
        raise ConfigError(f"a codec needs a name and options, got {content!r:.80}")
    codec_class: Any = registered_types().get(name)
    if codec_class is None and not options:
        return codec_of(name)  # of a plugin, or an error
    try:
        if codec_class is not None and codec_class.is_around:
            options = {**options, "inner": codec_from_json(options.get("inner"), _nesting + 1)}
        made: Codec = codec_class(**options)
    except TypeError as error:
        raise ConfigError(
            f"the codec {name!r:.80} cannot be made with {options!r:.80}: {error!s:.200}"
        ) from error
    return made


def types_by_extension(*media: str) -> dict[str, str]:
    """The names of the registered codecs by file extension, without the dot.

    Args:
        media: ``"image"``, ``"audio"``, ``"video"``: of such files only.
    """
    types = registered_types().items()
    wanted = [
        (name, each)
        for name, each in types
        if not media or (each.media_type or "").partition("/")[0] in media
    ]
    return {extension: name for name, each in wanted for extension in each.extensions}


def media_types() -> frozenset[str]:
    """The names of the registered codecs of images, sound and videos, whose files are copied unchanged."""
    return frozenset(types_by_extension("image", "audio", "video").values())


def type_of_extension(extension: str) -> str | None:
    """The name of the codec of a file extension, without the dot; None if it is unknown."""
    name = types_by_extension().get(extension)
    return name or next(
        (name for name, each in find_provided_codecs().items() if extension in each.extensions),
        None,
    )


def type_of_bytes(start: bytes) -> str | None:
    """The name of the codec of a file that begins with these 16 bytes; None if it is unknown."""
    return next((name for name, each in registered_types().items() if each.recognizes(start)), None)


@functools.cache
def _import_own() -> None:
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        importlib.import_module(f"{__package__}.{module.name}")


def _codec_of(name: str, codecs: Codecs, nesting: int) -> Codec:
    if name in codecs:
        return _as_codec(name, codecs[name])
    known = registered_types()
    if name in known and not known[name].is_around:
        return known[name]()
    around = re.fullmatch(r"(\w+)\((.*)\)", name, re.DOTALL | re.ASCII)
    if (
        around is not None
        and around[1] in known
        and known[around[1]].is_around
        and nesting < _MAX_NESTING
    ):
        made: Any = known[around[1]]
        codec: Codec = made(inner=_codec_of(around[2], codecs, nesting + 1))
        return codec
    provided = find_provided_codecs()
    if name in provided:
        return _as_codec(name, provided[name])
    names = sorted(
        {*codecs, *provided, *(name for name, each in known.items() if not each.is_around)}
    )
    raise ConfigError(
        f"unknown column type {name!r:.80}{did_you_mean(name, names)}; known types: {', '.join(names)}, and zstd(…) around each. "
        f"Pass codecs={{{name!r:.80}: …}} with a Codec, (encode, decode), or None for bytes, or "
        f"install the plugin that brings it"
    )


def _as_codec(name: str, given: Any) -> Codec:
    if isinstance(given, Codec):
        return given
    if given is None:
        return FunctionCodec()
    if (
        isinstance(given, tuple)
        and len(given) == 2
        and all(part is None or callable(part) for part in given)
    ):
        return FunctionCodec(*given)
    raise ConfigError(
        f"codecs[{name!r:.80}] must be a Codec, a pair of functions (encode, decode) or None, got {given!r:.80}"
    )


_providers: list[Callable[[], Mapping[str, Codec]]] = []


def add_codec_provider(provider: Callable[[], Mapping[str, Codec]]) -> None:
    """Register a function that returns codecs by type, for types that are neither registered nor passed.

    Codecs of earlier providers take precedence; registering a provider twice has no effect.
    """
    if provider not in _providers:
        _providers.append(provider)


def find_provided_codecs() -> dict[str, Codec]:
    """The codecs of all providers, by type."""
    import_providers()
    return {name: codec for provider in reversed(_providers) for name, codec in provider().items()}
