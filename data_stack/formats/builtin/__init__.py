"""The formats of data_stack, one module each, which :mod:`data_stack.formats.registry` imports."""
