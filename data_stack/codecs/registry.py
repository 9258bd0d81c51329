"""Finds the codec of a name, of a file extension, or of the first bytes of a file.

Each codec registers itself by the decorator :func:`register_codec`; so do the codecs of programs.
The first search imports all modules of this package. Codecs of plugins come from the hook
``data_stack_codecs``.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from data_stack.codecs.codec import MEDIA_KINDS, Codec, Codecs, FunctionCodec, media_kind
from data_stack.exception import ConfigError
from data_stack.util.forks import fork_lock
from data_stack.util.providers import import_providers
from data_stack.util.suggestions import did_you_mean

_CodecClass = TypeVar("_CodecClass", bound=type[Codec])

#: The maximum number of codecs around each other: ``zstd(zstd(json))`` has two.
_MAX_NESTING = 8

#: The registered classes by name. A registration replaces the dict, so that another thread may loop
#: over the previous one meanwhile.
_classes: Mapping[str, type[Codec]] = {}

#: Held while a class is registered.
_registering = fork_lock()

#: Functions that return the codecs of plugins, by type.
_providers: list[Callable[[], Mapping[str, Codec]]] = []


def register_codec(codec_class: _CodecClass) -> _CodecClass:
    """Register a codec by its ``name`` and ``extensions``; a class decorator.

    The class must work without arguments, except ``inner`` if it wraps another codec. A class that
    is defined again, as in a notebook, replaces the old one.

    Raises:
        ConfigError: the name is invalid, or another class has it.
    """
    name = codec_class.name
    if not re.fullmatch(r"[a-z_][A-Za-z0-9_.-]*", name, re.ASCII):
        raise ConfigError(
            f"{codec_class.__qualname__}.name must be a name such as 'dicom', got {name!r:.60}"
        )
    global _classes
    with _registering:
        known_class = _classes.get(name)
        if known_class is not None and _full_name(known_class) != _full_name(codec_class):
            raise ConfigError(
                f"the name {name!r} is already registered for {_full_name(known_class)}"
            )
        _classes = {**_classes, name: codec_class}
    return codec_class


def _full_name(codec_class: type[Codec]) -> str:
    return f"{codec_class.__module__}.{codec_class.__qualname__}"


def registered_types() -> Mapping[str, type[Codec]]:
    """Return the registered classes by name, those of this package included.

    Importing the modules of this package imports no heavy package.
    """
    _import_own_codecs()
    return _classes


@functools.cache
def _import_own_codecs() -> None:
    """Import the modules of this package, so that their codecs register themselves."""
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        importlib.import_module(f"{__package__}.{module.name}")


def add_codec_provider(provider: Callable[[], Mapping[str, Codec]]) -> None:
    """Register a function that returns codecs by type.

    It is asked for types that are neither registered nor passed. Codecs of earlier providers take
    precedence. Registering a provider twice has no effect.
    """
    if provider not in _providers:
        _providers.append(provider)


def find_provided_codecs() -> dict[str, Codec]:
    """Return the codecs of all providers, by type."""
    import_providers()
    codecs: dict[str, Codec] = {}
    # Backwards, as codecs of earlier providers replace those of later ones.
    for provider in reversed(_providers):
        codecs.update(provider())
    return codecs


# ------------------------------------------------------------------ by the type of a column


def codec_of(
    type: str,  # noqa: A002  # as Granular calls it
    codecs: Codecs | None = None,
) -> Codec:
    """Return the codec of a column's type, such as ``"array"`` or ``"zstd(json)"``.

    A ``[]`` at the end of the type is ignored.

    Args:
        type: the name; ``zstd(...)`` wraps any other.
        codecs: custom codecs by type, which take precedence over registered ones. Those of plugins
            come last.

    Raises:
        ConfigError: the type is unknown, or its entry in ``codecs`` is not a codec.
        MissingDependencyError: the codec needs a package that is not installed.
    """
    return _find_codec(type.removesuffix("[]"), codecs or {}, nesting=0)


def _find_codec(name: str, custom_codecs: Codecs, nesting: int) -> Codec:
    """Return the codec of a type that stands inside of ``nesting`` other ones.

    Raises:
        ConfigError: the type is unknown, or its entry in ``custom_codecs`` is not a codec.
        MissingDependencyError: the codec needs a package that is not installed.
    """
    if name in custom_codecs:
        return _as_codec(name, custom_codecs[name])

    codec_class = registered_types().get(name)
    if codec_class is not None and not codec_class.wraps_codec:
        return codec_class()

    wrapped = re.fullmatch(r"(\w+)\((.*)\)", name, re.DOTALL | re.ASCII)
    if wrapped is not None and nesting < _MAX_NESTING:
        wrapper_name, inner_name = wrapped.groups()
        wrapper_class: Any = registered_types().get(wrapper_name)
        if wrapper_class is not None and wrapper_class.wraps_codec:
            wrapper: Codec = wrapper_class(
                inner=_find_codec(inner_name, custom_codecs, nesting + 1)
            )
            return wrapper

    # Last, as asking plugins imports them.
    provided_codecs = find_provided_codecs()
    if name in provided_codecs:
        return _as_codec(name, provided_codecs[name])
    raise _unknown_type(name, {*custom_codecs, *provided_codecs})


def _unknown_type(name: str, other_types: set[str]) -> ConfigError:
    """Make the error of an unknown type, which lists the registered types and the other ones."""
    known_types = set(other_types)
    for known_name, codec_class in registered_types().items():
        if not codec_class.wraps_codec:
            known_types.add(known_name)
    names = sorted(known_types)
    return ConfigError(
        f"unknown column type {name!r:.80}{did_you_mean(name, names)}; "
        f"known types: {', '.join(names)}, and zstd(…) around each. "
        f"Pass codecs={{{name!r:.80}: …}} with a Codec, (encode, decode), or None for bytes, or "
        f"install the plugin that brings it"
    )


def _as_codec(name: str, entry: Any) -> Codec:
    """Return an entry of custom codecs as a codec.

    Raises:
        ConfigError: the entry is neither a codec, nor two functions, nor None.
    """
    if isinstance(entry, Codec):
        return entry
    if entry is None:
        return FunctionCodec()
    if isinstance(entry, tuple) and len(entry) == 2:
        encode, decode = entry
        is_encode_valid = encode is None or callable(encode)
        is_decode_valid = decode is None or callable(decode)
        if is_encode_valid and is_decode_valid:
            return FunctionCodec(encode, decode)
    raise ConfigError(
        f"codecs[{name!r:.80}] must be a Codec, a pair of functions (encode, decode) or None, "
        f"got {entry!r:.80}"
    )


def with_provided_codecs(types: Iterable[str], codecs: Codecs | None) -> Codecs | None:
    """Return the custom codecs of a reader, and those of plugins if a type is unknown.

    Plugins are asked only then, as asking imports them.
    """
    custom_codecs = codecs or {}
    for type_name in types:
        # The innermost codec: json of zstd(zstd(json))[].
        name = type_name.removesuffix("[]").rpartition("(")[2].rstrip(")")
        if name not in registered_types() and name not in custom_codecs:
            return {**find_provided_codecs(), **custom_codecs}
    return codecs


def codec_from_json(content: Any, _nesting: int = 0) -> Codec:
    """Return the codec that :meth:`Codec.to_json` described.

    Raises:
        ConfigError: the codec or one of its options is unknown.
        MissingDependencyError: the codec needs a package that is not installed.
    """
    name = None
    options: Any = None
    if isinstance(content, Mapping):
        name = content.get("codec")
        options = content.get("options", {})
    if not isinstance(name, str) or not isinstance(options, Mapping) or _nesting > _MAX_NESTING:
        raise ConfigError(f"a codec needs a name and options, got {content!r:.80}")

    codec_class: Any = registered_types().get(name)
    if codec_class is None and not options:
        # A codec of a plugin has no options; codec_of() raises if no plugin has it either.
        return codec_of(name)
    if codec_class is None:
        raise ConfigError(f"the codec {name!r:.80} with options {options!r:.80} is not registered")
    try:
        if codec_class.wraps_codec:
            inner = codec_from_json(options.get("inner"), _nesting + 1)
            options = {**options, "inner": inner}
        codec: Codec = codec_class(**options)
    except TypeError as error:
        raise ConfigError(
            f"the codec {name!r:.80} cannot be made with {options!r:.80}: {error!s:.200}"
        ) from error
    return codec


# ------------------------------------------------------------------ by a file


def types_by_extension(*media: str) -> dict[str, str]:
    """Return the names of the registered codecs by file extension, without the dot.

    Args:
        media: ``"image"``, ``"audio"`` or ``"video"``, for extensions of such files only. Without
            arguments, the extensions of all codecs are returned.
    """
    names: dict[str, str] = {}
    for name, codec_class in registered_types().items():
        if media and media_kind(codec_class.media_type) not in media:
            continue
        for extension in codec_class.extensions:
            names[extension] = name
    return names


def media_types() -> frozenset[str]:
    """Return the names of the registered codecs of images, sound and videos.

    Their files are copied unchanged.
    """
    return frozenset(types_by_extension(*MEDIA_KINDS).values())


def type_of_extension(extension: str) -> str | None:
    """Return the name of the codec of a file extension, without the dot; None if it is unknown."""
    registered_name = types_by_extension().get(extension)
    if registered_name is not None:
        return registered_name
    for name, codec in find_provided_codecs().items():
        if extension in codec.extensions:
            return name
    return None


def type_of_bytes(start: bytes) -> str | None:
    """Return the name of the codec of a file; None if no registered codec recognizes the file.

    Args:
        start: the first 16 bytes of the file; fewer if the file is shorter.
    """
    for name, codec_class in registered_types().items():
        if codec_class.recognizes(start):
            return name
    return None
