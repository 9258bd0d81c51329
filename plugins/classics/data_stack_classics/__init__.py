"""Well-known datasets, one module each; ``data_stack.load("kmnist")`` only imports its module.

Each module has a factory with all that is known of its dataset: files with their published
digests, license, citation, numbers of samples, names of classes. The base classes read the forms
of files that several datasets share: ``idx``, ``planes``, ``folders``, ``tables``.
"""

from __future__ import annotations
