"""What runs the tasks of a preparation: the contract of engines, and the engine of this machine."""

from data_stack.util.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
