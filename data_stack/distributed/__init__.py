"""Preparing datasets with several processes."""

from __future__ import annotations

from data_stack.distributed.processes import ProcessEngine
from data_stack.factories.engine import PreparationEngine

__all__ = ["PreparationEngine", "ProcessEngine"]
