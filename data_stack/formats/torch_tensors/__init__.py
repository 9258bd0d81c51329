"""Files of ``torch.save``, which are read without running code.

The layout is an uncompressed zip file: ``archive/data.pkl`` names the tensors, and
``archive/data/0`` and so on contain their bytes.
"""

from data_stack.exception import MissingDependencyError

# Checked once, for all modules of this package.
try:
    import torch  # noqa: F401
except ImportError as error:
    raise MissingDependencyError("data_stack.formats.torch_tensors", "torch", "torch") from error

from data_stack.formats.torch_tensors.iterator import (
    TensorsDatasetIterator as TensorsDatasetIterator,
)
from data_stack.formats.torch_tensors.loading import entries_left_out as entries_left_out
from data_stack.formats.torch_tensors.loading import load_tensors as load_tensors
from data_stack.formats.torch_tensors.loading import tensors_of as tensors_of
from data_stack.formats.torch_tensors.writing import save_tensors as save_tensors
from data_stack.formats.torch_tensors.writing import tensor_of as tensor_of
from data_stack.formats.torch_tensors.writing import write_tensor as write_tensor
