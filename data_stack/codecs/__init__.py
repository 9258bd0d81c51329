"""Codecs, which turn values into bytes and back, for records, Parquet cells, and files of WebDataset and image folders."""

from data_stack.util.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(
    __name__, __file__, earlier_names={"Column": "ColumnType"}
)
