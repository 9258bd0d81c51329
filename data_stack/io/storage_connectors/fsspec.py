"""The path of FsspecStorageConnector before version 0.2."""

from data_stack.util.moved_names import find_moved_names

__getattr__ = find_moved_names(
    __name__,
    {"FsspecStorageConnector": "data_stack.FsspecStorageConnector"},
    since="0.2",
    removed_in="1.0",
)
