"""Well-known datasets, one module each; ``data_stack.load("kmnist")`` only imports its module.

Pictures as arrays, texts, tables and sounds. ``facts.json`` has counts and names, ``sources.tsv`` files with published digests.
"""

from __future__ import annotations
