"""Petastorm's pickles, read without running them, and written so that Petastorm reads them.

Petastorm keeps the schema and the row-group indexes of a dataset as pickles. A pickle is a program:
whoever unpickles one from a stranger runs the stranger's code. Nothing in this package does that.

Reading:

1. ``opcode_scan`` refuses all opcodes that Petastorm's pickles do not contain.
2. ``known_globals`` lists the names of classes and functions that a pickle may contain.
3. ``decoding`` lets ``pickle.Unpickler`` build values from ``stubs`` of these names.
4. ``calls`` says what a call of such a function makes; the function itself is never called.
5. ``stub_values`` checks each part of the result; ``schema_reader`` and ``index_reader`` make
   schemas and indexes of the parts.

Writing: ``schema_writer`` and ``index_writer`` join the ``pieces`` of a pickle.
"""
