"""Codecs, which turn values into bytes and back.

Records, Parquet cells, and the files of WebDataset archives and image folders are such bytes.
"""

from data_stack.util.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(
    __name__, __file__, earlier_names={"Column": "ColumnType"}
)
