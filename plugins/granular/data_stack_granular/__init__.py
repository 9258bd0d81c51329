"""Granular's readers, writers, sources and loader, with its arguments, on data_stack's records and loader."""

from data_stack_granular.bag import BagReader as BagReader
from data_stack_granular.bag import BagWriter as BagWriter
from data_stack_granular.dataset import DatasetReader as DatasetReader
from data_stack_granular.dataset import DatasetWriter as DatasetWriter
from data_stack_granular.dataset import ShardedDatasetReader as ShardedDatasetReader
from data_stack_granular.dataset import ShardedDatasetWriter as ShardedDatasetWriter
from data_stack_granular.formats import decoders as decoders
from data_stack_granular.formats import encoders as encoders
from data_stack_granular.loader import Loader as Loader
