"""Who makes the batches of a loader: its own thread, other threads or other processes."""

from data_stack.loader.workers.base import WorkerKind as WorkerKind
from data_stack.loader.workers.base import Workers as Workers
