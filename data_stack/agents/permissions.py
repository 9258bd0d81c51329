"""What the user of ``data-stack mcp`` allows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Permissions:
    """What the user allows by the options of the command.

    Attributes:
        installed: read datasets of installed packages, whose code then runs.
        download: use the network: download sources, and ask catalogues such as ``hf:``. (A store
            that the user named is always reached.)
        prepare: prepare a dataset that is not ready, which writes into its store.
    """

    installed: bool = True
    download: bool = False
    prepare: bool = False
