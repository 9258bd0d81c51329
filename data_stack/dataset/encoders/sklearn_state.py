"""Transformers of scikit-learn as plain data, written and read by skops, which runs no code of theirs."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import zipfile
from typing import TYPE_CHECKING, Any, cast

from data_stack.exception import ConfigError, DataStackError, MissingDependencyError
from data_stack.util.request_limit import check_request

if TYPE_CHECKING:
    from types import ModuleType

_SCHEMA = "schema.json"
#: Harmless, but not trusted by skops itself: SimpleImputer and KBinsDiscretizer store their dtype.
_TRUSTED = ["numpy.dtype"]


def dump_transformer(transformer: Any) -> str:
    """A transformer as text.

    Raises:
        ConfigError: a part of it has a type that :func:`load_transformer` refuses.
        MissingDependencyError: skops is not installed.
    """
    return base64.b64encode(_dump(transformer)).decode("ascii")


def load_transformer(text: Any) -> Any:
    """The transformer that :func:`dump_transformer` wrote; ``text`` may come from an untrusted file.

    Raises:
        ConfigError: the text is damaged, or contains types that skops does not trust.
        MissingDependencyError: skops is not installed.
    """
    skops = _skops()
    try:
        data = base64.b64decode(text, validate=True)
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            check_request(sum(member.file_size for member in archive.infolist()), "the state of a transformer")
        return skops.loads(data, trusted=_TRUSTED)
    except DataStackError:
        raise
    except Exception as error:  # skops raises what the types that it makes do
        raise ConfigError(f"could not read the state of a transformer of scikit-learn: {error!s:.300}") from error


def describe_transformer(transformer: Any) -> Any:
    """Plain data that is equal for equal transformers: without the names of parts, which skops derives from memory addresses.

    Raises:
        ConfigError: as for :func:`dump_transformer`.
    """
    with zipfile.ZipFile(io.BytesIO(_dump(transformer))) as archive:
        digests = {name: hashlib.sha256(archive.read(name)).hexdigest() for name in archive.namelist() if name != _SCHEMA}

        def without_addresses(node: dict[str, Any]) -> dict[str, Any]:
            return {key: digests.get(value, value) if key == "file" else value for key, value in node.items() if key != "__id__"}

        return json.loads(archive.read(_SCHEMA), object_hook=without_addresses)


def _dump(transformer: Any) -> bytes:
    skops = _skops()
    try:
        data: bytes = skops.dumps(transformer)
        untrusted = sorted(set(skops.get_untrusted_types(data=data)) - set(_TRUSTED))
    except Exception as error:  # foreign code
        raise ConfigError(f"a {type(transformer).__name__} cannot be written as plain data: {error!s:.300}; pickle it") from error
    if untrusted:
        types = ", ".join(untrusted)[:300]
        raise ConfigError(f"a {type(transformer).__name__} cannot be written as plain data: skops does not trust {types}")
    return data


def _skops() -> ModuleType:
    try:
        from skops import io as skops_io
    except ImportError:
        raise MissingDependencyError("writing a transformer of scikit-learn as plain data", "skops", extra="sklearn") from None
    return cast("ModuleType", skops_io)
