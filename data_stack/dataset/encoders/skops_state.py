"""Transformers of scikit-learn as plain data, written and read by skops.

skops restores objects of scikit-learn and numpy, and runs no other code.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import zipfile
from typing import Any

from data_stack.exception import ConfigError, DataStackError, MissingDependencyError
from data_stack.util.request_limit import check_request

#: The member of skops' archive that describes the objects; the other members are arrays.
_SCHEMA = "schema.json"

#: Types that skops does not trust by itself, and that run no code. (SimpleImputer and
#: KBinsDiscretizer store their dtype.)
_TRUSTED_TYPES = ["numpy.dtype"]


def write_transformer(transformer: Any) -> str:
    """Write a transformer as text, from which :func:`load_transformer` makes it again.

    Raises:
        ConfigError: the transformer contains types that skops does not write or trust.
        MissingDependencyError: skops is not installed.
    """
    return base64.b64encode(_dump(transformer)).decode("ascii")


def load_transformer(text: Any) -> Any:
    """Return the transformer of a state.

    Args:
        text: what :func:`write_transformer` returned. It may come from an untrusted file.

    Raises:
        ConfigError: the text is damaged, or contains types that skops does not trust.
        MissingDependencyError: skops is not installed.
    """
    skops = _import_skops()
    try:
        data = base64.b64decode(text, validate=True)
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            n_bytes = sum(member.file_size for member in archive.infolist())
        check_request(n_bytes, "the state of a transformer")
        return skops.loads(data, trusted=_TRUSTED_TYPES)
    except DataStackError:
        raise
    except Exception as error:  # skops raises what the types that it makes do
        raise ConfigError(
            f"could not read the state of a transformer of scikit-learn: {error!s:.300}"
        ) from error


def describe_transformer(transformer: Any) -> Any:
    """Return plain data that is equal for equal transformers.

    Arrays stand in it by their digests. The names that skops gives to parts are left out, as skops
    derives them from addresses in memory.

    Raises:
        ConfigError: the transformer contains types that skops does not write or trust.
        MissingDependencyError: skops is not installed.
    """
    digests = {}
    with zipfile.ZipFile(io.BytesIO(_dump(transformer))) as archive:
        schema = archive.read(_SCHEMA)
        for name in archive.namelist():
            if name != _SCHEMA:
                digests[name] = hashlib.sha256(archive.read(name)).hexdigest()

    def make_independent_of_memory(node: dict[str, Any]) -> dict[str, Any]:
        fields = {key: value for key, value in node.items() if key != "__id__"}
        if "file" in fields:
            fields["file"] = digests.get(fields["file"], fields["file"])
        return fields

    return json.loads(schema, object_hook=make_independent_of_memory)


def _dump(transformer: Any) -> bytes:
    skops = _import_skops()
    try:
        data: bytes = skops.dumps(transformer)
        untrusted_types = set(skops.get_untrusted_types(data=data)) - set(_TRUSTED_TYPES)
        if untrusted_types:
            raise TypeError(f"skops does not trust {', '.join(sorted(untrusted_types))}")
    except Exception as error:  # foreign code
        raise ConfigError(
            f"a {type(transformer).__name__} cannot be written as plain data: "
            f"{error!s:.300}; pickle it"
        ) from error
    return data


def _import_skops() -> Any:
    try:
        from skops import io as skops_io
    except ImportError:
        raise MissingDependencyError(
            "writing a transformer of scikit-learn as plain data", "skops", extra="sklearn"
        ) from None
    return skops_io
