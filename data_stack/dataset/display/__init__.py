"""How samples look: values as pictures, sound and lines, iterators as HTML and text, plots."""
