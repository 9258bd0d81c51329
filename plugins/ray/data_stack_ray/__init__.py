"""Ray: preparations in its actors, data for Ray Data and from it, a loader for Ray Train."""

from data_stack.util.lazy import attach_stub

# Names are imported on first use, as importing Ray takes a second.
__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
