"""What is known of one installed plugin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

DATASETS_GROUP: Final = "data_stack.datasets"
"""Entry points that are datasets: ``mnist = "pkg.module:MNISTFactory"``."""

BEHAVIOUR_GROUP: Final = "data_stack"
"""Entry points that implement the hooks of :mod:`data_stack.plugins.hookspecs`.

One is written ``mongodb = "pkg.module"``.
"""

PluginState = Literal["ok", "listed", "broken", "blocked", "shadowed"]


@dataclass(frozen=True, slots=True)
class PluginRecord:
    """One entry point of an installed distribution, and its state.

    Attributes:
        name: the name of the entry point; a dataset is loaded by it.
        group: ``"data_stack.datasets"`` or ``"data_stack"``.
        distribution: the installed package that brings it.
        version: the version of the distribution.
        state: ``listed``: installed, not imported yet; ``ok``: imported, and it keeps its contract;
            ``broken``: its name is malformed, importing or calling it failed, it is not a dataset
            factory, or its hooks are not those of this version of data_stack; ``blocked``:
            ``DATA_STACK_DISABLE_PLUGINS`` names it; ``shadowed``: another distribution provides a
            dataset of the same name, or another copy of the distribution is used.
        error: why it is in its state; None for ``ok`` and ``listed``.
        entry_point: where its code is, ``"package.module:attribute"``.
    """

    name: str
    group: str
    distribution: str
    version: str
    state: PluginState = "listed"
    error: str | None = None
    entry_point: str = ""

    @property
    def qualified_name(self) -> str:
        """``"distribution:name"``, which reaches a dataset whose name alone is ambiguous."""
        return f"{self.distribution}:{self.name}"

    def __str__(self) -> str:
        kind = "plugin"
        if self.group == DATASETS_GROUP:
            kind = "dataset"
        return f"{kind} {self.name!r} of {self.distribution} {self.version}"
