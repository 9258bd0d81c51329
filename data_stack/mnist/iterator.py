"""The samples of MNIST."""

from __future__ import annotations

from data_stack.dataset.iterator import SampleAccess, SequenceDatasetIterator
from data_stack.dataset.iterator.layers.sequence import SequenceAccess
from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.torch_tensors import load_tensors
from data_stack.io.resources import StreamedResource


class MNISTIterator(SequenceDatasetIterator):
    """Samples ``(image, label, tag)``.

    An image is a float32 tensor of shape ``(28, 28)`` in [0, 1]; label and tag are the digit as an
    int.

    Args:
        samples_stream: a ``.pt`` resource of shape ``(n, 28, 28)``, float32. It is read whole, and
            always closed.
        targets_stream: a ``.pt`` resource of shape ``(n,)``, int64. It is read whole, and always
            closed.

    Raises:
        DatasetFileCorruptError: a resource is damaged, or they do not belong together.
    """

    def __init__(self, samples_stream: StreamedResource, targets_stream: StreamedResource) -> None:
        with samples_stream, targets_stream:
            samples = load_tensors(samples_stream)
            targets = load_tensors(targets_stream).tolist()
        if len(samples) != len(targets):
            raise DatasetFileCorruptError(
                f"{samples_stream.identifier!r} has {len(samples)} samples, "
                f"but {targets_stream.identifier!r} has {len(targets)} targets"
            )
        super().__init__(dataset_sequences=[samples, targets, targets])

    def make_access(self) -> SampleAccess:
        return _MNISTAccess(self._columns)


class _MNISTAccess(SequenceAccess):
    """Access to the tensors, which are the whole content of the dataset."""

    def content_fingerprint(self) -> None:
        """Return None: the arguments of the iterator, the tensors, decide its samples alone."""
