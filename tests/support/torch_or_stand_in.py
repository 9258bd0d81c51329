"""torch, or what stands in for it where it was left out.

Most tests of a file need no torch. With the stand-in, a test is skipped when it uses torch, not the
whole file when it is imported.
"""

from __future__ import annotations

from typing import Any

from left_out import LEFT_OUT


class _StandIn:
    """Says that torch is missing when something of it is used."""

    def __getattr__(self, name: str) -> Any:
        raise ModuleNotFoundError(f"torch.{name} is used, but torch was left out", name="torch")


if "torch" in LEFT_OUT:
    torch: Any = _StandIn()
else:
    import torch as torch
