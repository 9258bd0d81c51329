"""Fashion-MNIST: pictures of clothes in place of MNIST's digits."""

from __future__ import annotations

from data_stack_classics.idx import IdxFactory


class FashionMNISTFactory(IdxFactory, dataset="fashion-mnist"):
    """Pictures of clothes of ten kinds, 28 × 28 pixels.

    Samples are ``(image, label, tag)``: a uint8 array of shape ``(28, 28)``, and twice the position in ``class_names``.
    """
