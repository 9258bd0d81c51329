"""The samples of MNIST."""

from __future__ import annotations

from data_stack.dataset.iterator import SampleAccess, SequenceDatasetIterator
from data_stack.dataset.iterator.layers.sequence import SequenceAccess
from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.torch_tensors import load_tensors
from data_stack.io.resources import StreamedResource


class MNISTIterator(SequenceDatasetIterator):
    """Samples ``(image, label, tag)``: a float32 tensor of shape ``(28, 28)`` in [0, 1], and twice the digit as an int.

    Args:
        samples_stream: a ``.pt`` resource of shape ``(n, 28, 28)``, float32. Read whole and always closed.
        targets_stream: a ``.pt`` resource of shape ``(n,)``, int64; as before.

    Raises:
        DatasetFileCorruptError: one is damaged, or they do not belong together.
    """

    def __init__(self, samples_stream: StreamedResource, targets_stream: StreamedResource) -> None:
        with samples_stream, targets_stream:
            samples, targets = load_tensors(samples_stream), load_tensors(targets_stream).tolist()
        if len(samples) != len(targets):
            there = f"{targets_stream.identifier!r} has {len(targets)} targets"
            raise DatasetFileCorruptError(
                f"{samples_stream.identifier!r} has {len(samples)} samples, but {there}"
            )
        super().__init__(dataset_sequences=[samples, targets, targets])

    def make_access(self) -> SampleAccess:
        return _MNISTAccess(self._columns)


class _MNISTAccess(SequenceAccess):
    def content_fingerprint(self) -> None:
        """Nothing but the sequences, which the arguments are."""
