"""KMNIST: handwritten Japanese characters in place of MNIST's digits."""

from __future__ import annotations

from data_stack_classics.idx import IdxFactory


class KMNISTFactory(IdxFactory, dataset="kmnist"):
    """Ten hiragana of classical Japanese literature in cursive writing, 28 × 28 pixels.

    Samples are ``(image, label, tag)``: a uint8 array of shape ``(28, 28)``, and twice the position in ``class_names``.
    """
