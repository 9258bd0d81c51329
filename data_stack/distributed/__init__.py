"""Work that leaves this process: preparing datasets by several processes of this machine."""

from __future__ import annotations

from data_stack.dataset.engine import PreparationEngine
from data_stack.distributed.processes import ProcessEngine

__all__ = ["PreparationEngine", "ProcessEngine"]
