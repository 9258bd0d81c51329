"""CIFAR-100: small photographs of a hundred kinds of things."""

from __future__ import annotations

from data_stack_classics.planes import PlanesFactory


class CIFAR100Factory(PlanesFactory, dataset="cifar100"):
    """Photographs of things in a hundred classes, 32 × 32 pixels in colour.

    Samples are ``(image, label, superclass)``: a uint8 array of shape ``(32, 32, 3)``, the position in ``class_names``, and the
    number of one of 20 groups of classes, in the alphabetical order of their names, from ``aquatic_mammals`` to ``vehicles_2``.
    """

    columns, bytes_before = ("image", "label", "superclass"), ("superclass", "label")
