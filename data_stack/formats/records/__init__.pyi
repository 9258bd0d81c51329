from data_stack.codecs.codec import Codec as Codec
from data_stack.codecs.codec import ColumnType as ColumnType
from data_stack.codecs.codec import FunctionCodec as FunctionCodec
from data_stack.codecs.registry import codec_of as codec_of
from data_stack.formats.records.manifest import RecordsManifest as RecordsManifest
from data_stack.formats.records.opening import open as open  # noqa: A004  # records.open("train")
from data_stack.formats.records.reader import RecordReader as RecordReader
from data_stack.formats.records.sharded_reader import ShardedRecordReader as ShardedRecordReader
from data_stack.formats.records.sharded_writer import ShardedRecordWriter as ShardedRecordWriter
from data_stack.formats.records.writer import RecordWriter as RecordWriter
from data_stack.formats.records.writer import seal as seal
from data_stack.formats.records.writer import write_manifest as write_manifest

__all__: list[str]
