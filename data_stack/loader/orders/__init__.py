"""Orders of the samples of an epoch: bijections of ``range(n)`` with random access."""

from data_stack.loader.orders.block_shuffled import BlockShuffled as BlockShuffled
from data_stack.loader.orders.bucketed import Bucketed as Bucketed
from data_stack.loader.orders.in_order import InOrder as InOrder
from data_stack.loader.orders.lanes import Lanes as Lanes
from data_stack.loader.orders.order import Order as Order
from data_stack.loader.orders.order import block_lengths as block_lengths
from data_stack.loader.orders.shuffled import Shuffled as Shuffled
