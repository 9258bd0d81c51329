"""The datasets that everybody uses, one module each; ``data_stack.load("kmnist")`` imports the one that it needs.

Pictures as arrays, texts, tables and sounds. ``sources.tsv`` lists the files with the digests that others publish.
"""

from __future__ import annotations
