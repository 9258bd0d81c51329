"""Finds the codec of a name, a file extension, or the first bytes of a file.

Each codec registers itself by a decorator, and this module imports all modules of the package: to add a codec, add one module
with a class. Programs register codecs in the same way; those of plugins come from the hook ``data_stack_codecs``.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from data_stack.codecs.codec import Codec, FunctionCodec
from data_stack.codecs.provided import find_provided_codecs
from data_stack.exception import ConfigError
from data_stack.util.suggestions import did_you_mean

#: Custom codecs by type: a Codec, a pair of functions (encode, decode), or None for raw bytes.
Codecs: TypeAlias = Mapping[str, Codec | tuple[Callable[[Any], bytes] | None, Callable[[bytes], Any] | None] | None]

_CodecClass = TypeVar("_CodecClass", bound=type[Codec])

_NAME = re.compile(r"[a-z_][A-Za-z0-9_.-]*", re.ASCII)
_AROUND = re.compile(r"(\w+)\((.*)\)", re.DOTALL | re.ASCII)
_MAX_NESTING = 8

_classes: dict[str, type[Codec]] = {}


def register_codec(codec_class: _CodecClass) -> _CodecClass:
    """Register a codec by its ``name`` and ``extensions``; a class decorator.

    The class must work without arguments, except ``inner`` if it wraps another codec.

    Raises:
        ConfigError: the name is invalid, or another class has it.
    """
    name = codec_class.name
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{codec_class.__qualname__}.name must be a name such as 'dicom', got {name!r:.60}")
    known = _classes.setdefault(name, codec_class)
    if (known.__module__, known.__qualname__) != (codec_class.__module__, codec_class.__qualname__):
        raise ConfigError(f"the name {name!r} is already registered for {known.__module__}.{known.__qualname__}")
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
    return {**find_provided_codecs(), **(codecs or {})} if inner - registered_types().keys() - {*(codecs or ())} else codecs


def codec_from_json(content: Any, _nesting: int = 0) -> Codec:
    """The codec that :meth:`Codec.to_json` described.

    Raises:
        ConfigError: the codec or one of its options is unknown.
        MissingDependencyError: as for :func:`codec_of`.
    """
    name, options = (content.get("codec"), content.get("options", {})) if isinstance(content, Mapping) else (None, None)
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
        raise ConfigError(f"the codec {name!r:.80} cannot be made with {options!r:.80}: {error!s:.200}") from error
    return made


def types_by_extension(*media: str) -> dict[str, str]:
    """The names of the registered codecs by file extension, without the dot.

    Args:
        media: ``"image"``, ``"audio"``, ``"video"``: of such files only.
    """
    return {
        extension: name
        for name, each in registered_types().items()
        if not media or (each.media_type or "").partition("/")[0] in media
        for extension in each.extensions
    }


def media_types() -> frozenset[str]:
    """The names of the registered codecs of images, sound and videos, whose files are copied unchanged."""
    return frozenset(types_by_extension("image", "audio", "video").values())


def type_of_extension(extension: str) -> str | None:
    """The name of the codec of a file extension, without the dot; None if it is unknown."""
    name = types_by_extension().get(extension)
    return name or next((name for name, each in find_provided_codecs().items() if extension in each.extensions), None)


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
    around = _AROUND.fullmatch(name)
    if around is not None and around[1] in known and known[around[1]].is_around and nesting < _MAX_NESTING:
        made: Any = known[around[1]]
        codec: Codec = made(inner=_codec_of(around[2], codecs, nesting + 1))
        return codec
    provided = find_provided_codecs()
    if name in provided:
        return _as_codec(name, provided[name])
    names = sorted({*codecs, *provided, *(name for name, each in known.items() if not each.is_around)})
    raise ConfigError(
        f"unknown column type {name!r:.80}{did_you_mean(name, names)}; known types: {', '.join(names)}, and zstd(…) "
        f"around each. Pass codecs={{{name!r:.80}: …}} with a Codec, a pair of functions (encode, decode), or None for "
        f"raw bytes; `import data_stack.repository` adds types of plugins"
    )


def _as_codec(name: str, given: Any) -> Codec:
    if isinstance(given, Codec):
        return given
    if given is None:
        return FunctionCodec()
    if isinstance(given, tuple) and len(given) == 2 and all(part is None or callable(part) for part in given):
        return FunctionCodec(*given)
    raise ConfigError(f"codecs[{name!r:.80}] must be a Codec, a pair of functions (encode, decode) or None, got {given!r:.80}")
