"""The old path of :mod:`data_stack.engines.attempts`."""

from data_stack.util.moved_names import find_moved_names

__getattr__ = find_moved_names(
    __name__,
    {
        "Failure": "data_stack.engines.attempts.Failure",
        "attempt": "data_stack.engines.attempts.attempt",
        "pack": "data_stack.engines.attempts.pack",
        "unpack": "data_stack.engines.attempts.unpack",
        "ProcessEngine": "data_stack.engines.process_engine.ProcessEngine",
    },
    since="0.2",
    removed_in="1.0",
)
