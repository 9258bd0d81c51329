"""CIFAR-10: small photographs of ten kinds of animals and vehicles."""

from __future__ import annotations

from data_stack_classics.planes import PlanesFactory


class CIFAR10Factory(PlanesFactory, dataset="cifar10"):
    """Photographs of animals and vehicles in ten classes, 32 × 32 pixels in colour.

    Samples are ``(image, label, tag)``: a uint8 array of shape ``(32, 32, 3)``, and twice the position in ``class_names``.
    """

    n_samples = {"train": 50_000, "test": 10_000}
    folder = "cifar-10-batches-bin"
    files = {"train": [f"data_batch_{number}.bin" for number in range(1, 6)], "test": ["test_batch.bin"]}
    class_names = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
