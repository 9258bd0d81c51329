from data_stack.formats.parquet.codecs import ArrowCodec as ArrowCodec
from data_stack.formats.parquet.codecs import CompressedNdarrayCodec as CompressedNdarrayCodec
from data_stack.formats.parquet.codecs import JpegCodec as JpegCodec
from data_stack.formats.parquet.codecs import ListCodec as ListCodec
from data_stack.formats.parquet.codecs import NdarrayCodec as NdarrayCodec
from data_stack.formats.parquet.codecs import NestedCodec as NestedCodec
from data_stack.formats.parquet.codecs import PngCodec as PngCodec
from data_stack.formats.parquet.codecs import ScalarCodec as ScalarCodec
from data_stack.formats.parquet.codecs import TensorCodec as TensorCodec
from data_stack.formats.parquet.dataset import ParquetDataset as ParquetDataset
from data_stack.formats.parquet.inference import infer_schema as infer_schema
from data_stack.formats.parquet.manifest import ParquetFileRecord as ParquetFileRecord
from data_stack.formats.parquet.manifest import ParquetManifest as ParquetManifest
from data_stack.formats.parquet.metadata_generation import generate_metadata as generate_metadata
from data_stack.formats.parquet.schema import Field as Field
from data_stack.formats.parquet.schema import Schema as Schema
from data_stack.formats.parquet.selecting import Predicate as Predicate
from data_stack.formats.parquet.selecting import col as col
from data_stack.formats.parquet.writer import ParquetWriter as ParquetWriter

__all__: list[str]
