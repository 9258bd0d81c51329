"""The kinds of things that plugins bring through hooks, and what is accepted of each."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass

from data_stack.codecs import Codec
from data_stack.codecs.registry import registered_types
from data_stack.dataset.encoders.encoder import Encoder, built_in_kinds
from data_stack.exception import PluginError
from data_stack.io.storage_connectors.url import BUILT_IN_STORAGE_SCHEMES

#: The schemes that data_stack.io.retriever fetches from by itself.
BUILT_IN_RETRIEVER_SCHEMES = frozenset({"file", "http", "https", "package"})

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_+.-]*", re.ASCII)
_SCHEME_OF_CATALOGUE = re.compile(r"[a-z][a-z0-9-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class HookKind:
    """What plugins bring through one hook of :mod:`data_stack.plugins.hookspecs`.

    Attributes:
        name: the hook without ``data_stack_``, such as ``"codecs"``.
        accepts: returns whether a value can be provided under a name.
        built_in: returns the names that data_stack itself provides, and no plugin can.
    """

    name: str
    accepts: Callable[[str, object], bool]
    built_in: Callable[[], Container[str]]

    @property
    def hook(self) -> str:
        """The name of the hook's function."""
        return f"data_stack_{self.name}"

    def check(self, name: object, value: object, taken: Container[str]) -> None:
        """Check a value that a plugin provides.

        Args:
            name: the name of the value.
            value: what the hook returned under the name.
            taken: the names that other plugins provide.

        Raises:
            PluginError: the hook's documentation excludes the value, or the name is taken.
        """
        is_name = isinstance(name, str) and _NAME.fullmatch(name) is not None
        if not is_name or not self.accepts(str(name), value):
            raise PluginError(
                f"{self.hook} returned {name!r:.80}: {value!r:.80}, which its documentation "
                f"excludes"
            )
        if name in self.built_in() or name in taken:
            raise PluginError(f"{name!r} of {self.hook} is taken, by data_stack or another plugin")


def _is_callable(name: str, value: object) -> bool:
    return callable(value)


def _is_codec(column_type: str, value: object) -> bool:
    return isinstance(value, Codec)


def _is_encoder(kind: str, value: object) -> bool:
    if not isinstance(value, type) or not issubclass(value, Encoder):
        return False
    return not inspect.isabstract(value) and value.kind == kind


def _is_format(name: str, value: object) -> bool:
    # Not issubclass(value, Format): that class is of a room above this one.
    if not isinstance(value, type) or inspect.isabstract(value):
        return False
    return getattr(value, "name", None) == name and callable(getattr(value, "open_source", None))


def _is_catalogue(scheme: str, value: object) -> bool:
    # Not isinstance(value, Catalogue): that class is of a room above this one.
    if isinstance(value, type) or _SCHEME_OF_CATALOGUE.fullmatch(scheme) is None:
        return False
    return callable(getattr(value, "find", None)) and callable(getattr(value, "search", None))


HOOK_KINDS: Mapping[str, HookKind] = {
    kind.name: kind
    for kind in [
        HookKind("storage_connectors", _is_callable, lambda: BUILT_IN_STORAGE_SCHEMES),
        HookKind("retrievers", _is_callable, lambda: BUILT_IN_RETRIEVER_SCHEMES),
        HookKind("engines", _is_callable, lambda: {"processes"}),
        HookKind("encoders", _is_encoder, built_in_kinds),
        HookKind("codecs", _is_codec, registered_types),
        # A plugin's format may have the name of one of ours, which takes precedence.
        HookKind("formats", _is_format, lambda: ()),
        HookKind("catalogues", _is_catalogue, lambda: ()),
        # The name of the description that data_stack itself writes.
        HookKind("documents", _is_callable, lambda: {"data_stack.json"}),
    ]
}
"""All kinds, by their names."""
