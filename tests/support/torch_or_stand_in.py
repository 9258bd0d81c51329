"""torch, or what stands in for it where it was left out.

Most tests of a file need no torch. With the stand-in, a test is skipped when it uses torch, not the
whole file when it is imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from left_out import LEFT_OUT


class _StandIn:
    """Says that torch is missing when something of it is used."""

    def __getattr__(self, name: str) -> Any:
        raise ModuleNotFoundError(f"torch.{name} is used, but torch was left out", name="torch")


if TYPE_CHECKING or "torch" not in LEFT_OUT:
    import torch as torch
else:
    torch = _StandIn()
