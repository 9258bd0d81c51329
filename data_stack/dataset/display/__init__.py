"""How samples look: values as pictures, sound and lines, iterators as HTML and text, plots."""

import data_stack.dataset.iterator  # noqa: F401  # imports the modules of this folder in their order
