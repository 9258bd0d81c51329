"""The old path of :class:`data_stack.engines.PreparationEngine`."""

from data_stack.util.moved_names import find_moved_names

__getattr__ = find_moved_names(
    __name__,
    {"PreparationEngine": "data_stack.engines.PreparationEngine"},
    since="0.2",
    removed_in="1.0",
)
