"""Well-known datasets, one module each.

``data_stack.load("kmnist")`` imports only the module of that dataset. The module has a factory,
which declares the files with their published digests, the license, the citation, the numbers of
samples and the names of the classes.

Several datasets have files in one form. The base classes that read these forms are in ``idx``,
``planes``, ``folders`` and ``tables``.
"""

from __future__ import annotations
