"""Codecs of fields: Parquet's own types by an ArrowCodec, or the bytes of any other codec."""

from data_stack.codecs.npy import NpyCodec as NdarrayCodec
from data_stack.codecs.npy import NpzCodec as CompressedNdarrayCodec
from data_stack.codecs.pillow_images import JpgCodec as JpegCodec
from data_stack.codecs.png import PngCodec
from data_stack.formats.parquet.codecs.arrow_codec import ArrowCodec
from data_stack.formats.parquet.codecs.field_codec import FieldCodec, register_arrow_codec
from data_stack.formats.parquet.codecs.list_codec import ListCodec
from data_stack.formats.parquet.codecs.nested_codec import NestedCodec
from data_stack.formats.parquet.codecs.scalar_codec import ScalarCodec
from data_stack.formats.parquet.codecs.tensor_codec import TensorCodec
from data_stack.formats.parquet.columns import CellError

__all__ = [
    "ArrowCodec",
    "CellError",
    "CompressedNdarrayCodec",
    "FieldCodec",
    "JpegCodec",
    "ListCodec",
    "NdarrayCodec",
    "NestedCodec",
    "PngCodec",
    "ScalarCodec",
    "TensorCodec",
    "register_arrow_codec",
]
