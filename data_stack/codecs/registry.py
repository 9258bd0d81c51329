"""Which codec a name, a file's ending or its first bytes stand for.

All codecs of this package are found here: each registers itself, so that a new one is a class in a file of its own and nothing
else. Programs register theirs in the same way; those of plugins come by the hook ``data_stack_codecs``.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from data_stack.codecs.codec import Codec, FunctionCodec
from data_stack.codecs.provided import find_provided_codecs
from data_stack.exception import ConfigError
from data_stack.util.suggestions import did_you_mean

#: Codecs of one's own by type: a Codec, a pair of functions (encode, decode), or None for bytes as they are.
Codecs: TypeAlias = Mapping[str, Codec | tuple[Callable[[Any], bytes] | None, Callable[[bytes], Any] | None] | None]

_CodecClass = TypeVar("_CodecClass", bound=type[Codec])

_NAME = re.compile(r"[a-z_][A-Za-z0-9_.-]*", re.ASCII)
_AROUND = re.compile(r"(\w+)\((.*)\)", re.DOTALL | re.ASCII)
_MAX_NESTING = 8

_classes: dict[str, type[Codec]] = {}


def register_codec(codec_class: _CodecClass) -> _CodecClass:
    """Have a codec found by its ``name`` and its ``extensions``: a decorator of the class.

    The class must work without arguments, except ``inner`` where it wraps another codec.

    Raises:
        ConfigError: the name is no name, or another class has it.
    """
    name = codec_class.name
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{codec_class.__qualname__}.name is a name such as 'dicom', not {name!r:.60}")
    known = _classes.setdefault(name, codec_class)
    if (known.__module__, known.__qualname__) != (codec_class.__module__, codec_class.__qualname__):
        raise ConfigError(f"the codec {name!r} is {known.__module__}.{known.__qualname__} already")
    _classes[name] = codec_class
    return codec_class


def registered_types() -> Mapping[str, type[Codec]]:
    """The registered classes by name, those of this package among them; none of them brings a heavy package by being imported."""
    _import_own()
    return _classes


def codec_of(type: str, codecs: Codecs | None = None) -> Codec:  # noqa: A002  # as Granular calls it
    """The codec of a column's type, such as ``"array"`` or ``"zstd(json)"``; a ``[]`` behind it changes nothing.

    Args:
        type: the name; ``zstd(...)`` is around any other.
        codecs: codecs of one's own by type, which go before those that are registered; those of plugins come last.

    Raises:
        ConfigError: there is no such type, or what ``codecs`` has for it is no codec.
        MissingDependencyError: it needs a package that is not installed.
    """
    return _codec_of(type.removesuffix("[]"), codecs or {}, 0)


def codec_from_json(content: Any, _nesting: int = 0) -> Codec:
    """The codec that :meth:`Codec.to_json` described.

    Raises:
        ConfigError: there is no such codec, or it has no such options.
        MissingDependencyError: as for :func:`codec_of`.
    """
    name, options = (content.get("codec"), content.get("options", {})) if isinstance(content, Mapping) else (None, None)
    if not isinstance(name, str) or not isinstance(options, Mapping) or _nesting > _MAX_NESTING:
        raise ConfigError(f"a codec has a name and options, this is {content!r:.80}")
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
    """The names of the registered codecs by what the names of their files end in, without the dot.

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
    """The names of the registered codecs of images, sound and videos, whose files are carried over as they are."""
    return frozenset(types_by_extension("image", "audio", "video").values())


def type_of_extension(extension: str) -> str | None:
    """The name of the codec of files whose names end in ``extension``, given without a dot; None if it is unknown."""
    name = types_by_extension().get(extension)
    return name or next((name for name, each in find_provided_codecs().items() if extension in each.extensions), None)


def type_of_bytes(start: bytes) -> str | None:
    """The name of the codec of a file that begins with these 16 bytes; None where none is sure."""
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
        f"there is no type of column {name!r:.80}{did_you_mean(name, names)}; there are: {', '.join(names)}, "
        f"and zstd(…) around each. Give codecs={{{name!r:.80}: …}} a Codec, a pair of functions (encode, decode), "
        f"or None for bytes as they are; types that plugins bring are known after `import data_stack.repository`"
    )


def _as_codec(name: str, given: Any) -> Codec:
    if isinstance(given, Codec):
        return given
    if given is None:
        return FunctionCodec()
    if isinstance(given, tuple) and len(given) == 2 and all(part is None or callable(part) for part in given):
        return FunctionCodec(*given)
    raise ConfigError(f"codecs[{name!r:.80}] is {given!r:.80}; a Codec, a pair of functions (encode, decode) or None is wanted")
