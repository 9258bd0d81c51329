"""Granular's names, with its arguments, on the records and the loader of data_stack."""

from data_stack_granular.bag import BagReader as BagReader
from data_stack_granular.bag import BagWriter as BagWriter
from data_stack_granular.dataset import DatasetReader as DatasetReader
from data_stack_granular.dataset import DatasetWriter as DatasetWriter
from data_stack_granular.formats import decoders as decoders
from data_stack_granular.formats import encoders as encoders
from data_stack_granular.loader import Loader as Loader
from data_stack_granular.sharded import ShardedDatasetReader as ShardedDatasetReader
from data_stack_granular.sharded import ShardedDatasetWriter as ShardedDatasetWriter
