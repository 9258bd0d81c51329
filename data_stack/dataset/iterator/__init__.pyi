"""Samples behind one interface, and what can be stacked on it."""

from data_stack.dataset.iterator.access import SampleAccess as SampleAccess
from data_stack.dataset.iterator.access_bases import OneToOneAccess as OneToOneAccess
from data_stack.dataset.iterator.access_bases import SourceAccess as SourceAccess
from data_stack.dataset.iterator.access_of_iterator import DefaultAccess as DefaultAccess
from data_stack.dataset.iterator.access_of_iterator import access_to as access_to
from data_stack.dataset.iterator.contract import AccessedDatasetIterator as AccessedDatasetIterator
from data_stack.dataset.iterator.contract import Batch as Batch
from data_stack.dataset.iterator.contract import ColumnArray as ColumnArray
from data_stack.dataset.iterator.contract import ColumnKey as ColumnKey
from data_stack.dataset.iterator.contract import DatasetIterator as DatasetIterator
from data_stack.dataset.iterator.contract import DatasetIteratorIF as DatasetIteratorIF
from data_stack.dataset.iterator.contract import IndexArray as IndexArray
from data_stack.dataset.iterator.contract import (
    InformedDatasetIteratorIF as InformedDatasetIteratorIF,
)
from data_stack.dataset.iterator.contract import Sample as Sample
from data_stack.dataset.iterator.contract import sample_or_view as sample_or_view
from data_stack.dataset.iterator.layers.balanced import (
    BalancedDatasetIterator as BalancedDatasetIterator,
)
from data_stack.dataset.iterator.layers.batched import (
    BatchedDatasetIterator as BatchedDatasetIterator,
)
from data_stack.dataset.iterator.layers.cached import (
    CachedDatasetIterator as CachedDatasetIterator,
)
from data_stack.dataset.iterator.layers.combined import (
    CombinedDatasetIterator as CombinedDatasetIterator,
)
from data_stack.dataset.iterator.layers.deduplicated import (
    DeduplicatedDatasetIterator as DeduplicatedDatasetIterator,
)
from data_stack.dataset.iterator.layers.dicts import DictsDatasetIterator as DictsDatasetIterator
from data_stack.dataset.iterator.layers.encoded import (
    EncodedDatasetIterator as EncodedDatasetIterator,
)
from data_stack.dataset.iterator.layers.fields import FieldsDatasetIterator as FieldsDatasetIterator
from data_stack.dataset.iterator.layers.filtered import (
    FilteredDatasetIterator as FilteredDatasetIterator,
)
from data_stack.dataset.iterator.layers.in_memory import (
    InMemoryDatasetIterator as InMemoryDatasetIterator,
)
from data_stack.dataset.iterator.layers.informed import (
    InformedDatasetIterator as InformedDatasetIterator,
)
from data_stack.dataset.iterator.layers.interleaved import (
    InterleavedDatasetIterator as InterleavedDatasetIterator,
)
from data_stack.dataset.iterator.layers.mapped import MappedDatasetIterator as MappedDatasetIterator
from data_stack.dataset.iterator.layers.mixed import MixedDatasetIterator as MixedDatasetIterator
from data_stack.dataset.iterator.layers.ordered import (
    SortedDatasetIterator as SortedDatasetIterator,
)
from data_stack.dataset.iterator.layers.packed import PackedDatasetIterator as PackedDatasetIterator
from data_stack.dataset.iterator.layers.renamed import (
    RenamedDatasetIterator as RenamedDatasetIterator,
)
from data_stack.dataset.iterator.layers.repeated import (
    RepeatedDatasetIterator as RepeatedDatasetIterator,
)
from data_stack.dataset.iterator.layers.resampled import (
    ResampledDatasetIterator as ResampledDatasetIterator,
)
from data_stack.dataset.iterator.layers.sequence import (
    SequenceDatasetIterator as SequenceDatasetIterator,
)
from data_stack.dataset.iterator.layers.sharded import (
    ShardedDatasetIterator as ShardedDatasetIterator,
)
from data_stack.dataset.iterator.layers.shuffled import (
    ShuffledDatasetIterator as ShuffledDatasetIterator,
)
from data_stack.dataset.iterator.layers.tuples import TuplesDatasetIterator as TuplesDatasetIterator
from data_stack.dataset.iterator.layers.view import DatasetIteratorView as DatasetIteratorView
from data_stack.dataset.iterator.layers.view import RearrangedAccess as RearrangedAccess
from data_stack.dataset.iterator.layers.windowed import (
    WindowedDatasetIterator as WindowedDatasetIterator,
)
from data_stack.dataset.iterator.layers.zipped import ZippedDatasetIterator as ZippedDatasetIterator
from data_stack.dataset.iterator.origins import Origin as Origin
from data_stack.dataset.meta import column_names as column_names
