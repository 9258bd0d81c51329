"""MNIST, the worked example: 70,000 handwritten digits from IDX files to tensors."""

from __future__ import annotations
