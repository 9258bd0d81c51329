"""What turns values into bytes and back: records, cells of Parquet, files of WebDataset and of images are all such bytes."""

from data_stack.util.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
