"""Preparing datasets with several processes."""

from data_stack.distributed.attempts import ProcessEngine as ProcessEngine
