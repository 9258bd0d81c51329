"""Which samples, in which order, in batches."""

from data_stack.loader.buckets import Bucketed
from data_stack.loader.collation import Collation, Concatenated, Padded
from data_stack.loader.lanes import Lanes
from data_stack.loader.loader import Loader
from data_stack.loader.orders import BlockShuffled, InOrder, Order, Shuffled
from data_stack.loader.plan import Plan
from data_stack.loader.ragged import Ragged
from data_stack.loader.sources import Epochs, Interleave, Mix, Sample, StepSource, Transform, Truncate
from data_stack.loader.state import LoaderState
from data_stack.loader.statistics import LoaderStatistics

__all__ = [
    "BlockShuffled",
    "Bucketed",
    "Collation",
    "Concatenated",
    "Epochs",
    "InOrder",
    "Interleave",
    "Lanes",
    "Loader",
    "LoaderState",
    "LoaderStatistics",
    "Mix",
    "Order",
    "Padded",
    "Plan",
    "Ragged",
    "Sample",
    "Shuffled",
    "StepSource",
    "Transform",
    "Truncate",
]
