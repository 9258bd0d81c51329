"""What is known of one plugin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["BEHAVIOUR_GROUP", "DATASETS_GROUP", "PluginRecord", "PluginState"]

DATASETS_GROUP: Final = "data_stack.datasets"
"""Entry points that are datasets: ``mnist = "pkg.module:MNISTFactory"``."""

BEHAVIOUR_GROUP: Final = "data_stack"
"""Entry points that implement the hooks of :mod:`data_stack.plugins.hookspecs`: ``mongodb = "pkg.module"``."""

PluginState = Literal["ok", "listed", "broken", "blocked", "incompatible", "shadowed"]


@dataclass(frozen=True, slots=True)
class PluginRecord:
    """One entry point of an installed distribution, and what became of it.

    Attributes:
        name: of the entry point; a dataset is loaded by it.
        group: ``"data_stack.datasets"`` or ``"data_stack"``.
        distribution: the installed package that brings it.
        version: of the distribution.
        state: ``listed``: installed, not imported yet; ``ok``: imported, and it does what it should; ``broken``: its metadata
            is malformed, or importing or calling it failed; ``incompatible``: it was imported but is no dataset factory, its
            hooks are not those of this version of data_stack, or a URL scheme that it brings is taken; ``blocked``: an
            environment variable says so; ``shadowed``: its name does not lead to it, as another distribution, or an earlier
            copy of the same one, has it too.
        error: why it is in its state; None for ``ok`` and ``listed``.
        import_ms: milliseconds that importing it took; None if it was not imported.
        entry_point: where its code is, ``"package.module:attribute"``.
    """

    name: str
    group: str
    distribution: str
    version: str
    state: PluginState
    error: str | None = None
    import_ms: float | None = None
    entry_point: str = ""

    @property
    def qualified_name(self) -> str:
        """``"distribution:name"``, which reaches a dataset whose name alone is ambiguous."""
        return f"{self.distribution}:{self.name}"

    def __str__(self) -> str:
        kind = "dataset" if self.group == DATASETS_GROUP else "plugin"
        return f"{kind} {self.name!r} of {self.distribution} {self.version}"
