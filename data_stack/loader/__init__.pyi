from data_stack.loader.advice import Advice as Advice
from data_stack.loader.budgets.budget import Budget as Budget
from data_stack.loader.collation import Collation as Collation
from data_stack.loader.collation import Concatenated as Concatenated
from data_stack.loader.collation import Padded as Padded
from data_stack.loader.collation import Ragged as Ragged
from data_stack.loader.conversion import Conversion as Conversion
from data_stack.loader.cu_seqlens import CuSeqlens as CuSeqlens
from data_stack.loader.cu_seqlens import find_cu_seqlens as find_cu_seqlens
from data_stack.loader.damaged_sample import DamagedSample as DamagedSample
from data_stack.loader.loader import Loader as Loader
from data_stack.loader.model_speed import SpeedWithoutLoading as SpeedWithoutLoading
from data_stack.loader.orders import BlockShuffled as BlockShuffled
from data_stack.loader.orders import Bucketed as Bucketed
from data_stack.loader.orders import InOrder as InOrder
from data_stack.loader.orders import Lanes as Lanes
from data_stack.loader.orders import Order as Order
from data_stack.loader.orders import Shuffled as Shuffled
from data_stack.loader.plan import Plan as Plan
from data_stack.loader.ranks import shard_of_process as shard_of_process
from data_stack.loader.state import LoaderState as LoaderState
from data_stack.loader.statistics import LoaderStatistics as LoaderStatistics
from data_stack.loader.step_samples import SampleOfStep as SampleOfStep
from data_stack.loader.step_samples import StepSamples as StepSamples

__all__: list[str]
