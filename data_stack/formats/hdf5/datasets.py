"""Finds the datasets in an open HDF5 file, without following links, and checks them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import h5py

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.hdf5.file import HDF5File
from data_stack.io.account import LeftOut
from data_stack.io.parsing import check_expansion

#: HDF5 reads a whole chunk for one row of it.
MAX_CHUNK_BYTES: Final = 1 << 30

#: The maximum number of objects in a file whose datasets are listed.
_MAX_OBJECTS: Final = 10_000

#: How many names of a group a message lists.
_MAX_NAMES_SHOWN: Final = 20

#: The attribute of a group in which pandas.HDFStore keeps a DataFrame or Series.
_PANDAS_TYPE: Final = "pandas_type"

#: The rule that leaves out a DataFrame.
_FRAME: Final = "a DataFrame of pandas, which pandas.read_hdf(path, key) reads"

#: The rule that leaves out a link.
_LINK: Final = "a link, which is not followed; name the path that it leads to"


@dataclass(frozen=True, slots=True)
class FoundDatasets:
    """The datasets in a file.

    Attributes:
        paths: the paths of those that can be read, sorted.
        left_out: what is left out, with the rules that leave it out.
    """

    paths: list[str]
    left_out: list[LeftOut]


def find_datasets(file: HDF5File) -> FoundDatasets:
    """Find the datasets in a file.

    Links are left out, and so are the axes and blocks of a DataFrame that pandas stored.

    Raises:
        DatasetFileCorruptError: the file is damaged, holds more than 10,000 objects, or DataFrames
            of pandas and nothing else.
    """
    paths: list[str] = []
    frames: list[str] = []
    left_out: list[LeftOut] = []
    n_objects = 0

    def visit(path: str, item: Any) -> None:
        nonlocal n_objects
        n_objects += 1
        if n_objects > _MAX_OBJECTS:
            raise DatasetFileCorruptError(f"{file.name!r} holds more than {_MAX_OBJECTS} objects")
        if isinstance(item, h5py.Dataset):
            paths.append(path)
        elif isinstance(item, h5py.Group):
            if _PANDAS_TYPE in item.attrs:
                frames.append(path)
            left_out.extend(_links_in(item, path))

    with file.reading():
        left_out.extend(_links_in(file.root, ""))
        # Visits each object once, and follows hard links only.
        file.root.visititems(visit)

    if not frames:
        return FoundDatasets(sorted(paths), left_out)
    folders_of_frames = tuple(f"{frame}/" for frame in frames)
    paths_beside = [path for path in paths if not path.startswith(folders_of_frames)]
    if not paths_beside:
        raise DatasetFileCorruptError(
            f"{file.name!r} holds DataFrames of pandas, such as {frames[0]!r:.100}, whose axes and "
            f"blocks are no columns. Pass data_stack.from_pandas(pandas.read_hdf(path, "
            f"{frames[0]!r:.100}))"
        )
    left_out.extend(LeftOut(frame, _FRAME) for frame in frames)
    return FoundDatasets(sorted(paths_beside), left_out)


def _links_in(group: Any, path: str) -> list[LeftOut]:
    """Return the links in a group that are not followed."""
    links = []
    for name in group:
        link = group.get(name, getlink=True)
        if not isinstance(link, h5py.HardLink):
            links.append(LeftOut(f"{path}/{name}".lstrip("/"), _LINK))
    return links


def dataset_at(file: HDF5File, path: str) -> Any:
    """Return the dataset at a path. Each component is resolved without following links.

    Raises:
        DatasetFileCorruptError: there is no dataset, or a component is a link.
    """
    item: Any = file.root
    path_of_item = ""
    for component in path.split("/"):
        if component in ("", "."):
            continue
        path_of_member = f"{path_of_item}/{component}" if path_of_item else component
        # `component in item` would follow the link and open another file.
        is_group = isinstance(item, h5py.Group)
        if not is_group or not item.id.links.exists(component.encode()):
            members = "no group"
            if is_group:
                members = ", ".join(map(repr, list(item)[:_MAX_NAMES_SHOWN]))
            raise DatasetFileCorruptError(
                f"{file.name!r} has no {path_of_member!r}; {path_of_item or '/'!r} holds {members}"
            )
        link = item.get(component, getlink=True)
        if not isinstance(link, h5py.HardLink):
            raise DatasetFileCorruptError(
                f"{file.name!r}: {path_of_member!r} links to {_describe_link(link)}. "
                "Links are refused"
            )
        item = item[component]
        path_of_item = path_of_member
    if not isinstance(item, h5py.Dataset):
        raise DatasetFileCorruptError(
            f"{file.name!r}: {path!r} is a {type(item).__name__.lower()}, not a dataset"
        )
    return item


def _describe_link(link: Any) -> str:
    """Return where a link leads to, for a message."""
    if isinstance(link, h5py.SoftLink):
        return f"{link.path!r:.200}; name that path"
    return "another file"


def check_dataset(dataset: Any, file: HDF5File, max_expansion: float | None) -> None:
    """Check that the values of a dataset are a column, and lie in its file.

    Args:
        dataset: a dataset of h5py.
        file: the file of the dataset.
        max_expansion: the maximum number of bytes per stored byte; None for no limit.

    Raises:
        DatasetFileCorruptError: the values are no column or lie in another file, or take too many
            bytes when they are unpacked.
    """
    problem = _problem_of_dataset(dataset)
    if problem is not None:
        raise DatasetFileCorruptError(
            f"{file.name!r}: {dataset.name!r} {problem}; choose other datasets: columns=[…]"
        )

    # HDF5 visits each chunk to compute the stored size: 36 MiB of requests for a file of 256 MiB
    # in a remote store. There the size of the file is the limit.
    is_chunked_in_store = dataset.chunks is not None and file.resource.prefetches
    if is_chunked_in_store:
        stored_bytes = file.resource.size
    else:
        stored_bytes = dataset.id.get_storage_size()
    n_bytes = dataset.size * dataset.dtype.itemsize
    check_expansion(f"{file.name}:{dataset.name}", n_bytes, stored_bytes, max_expansion)

    chunk_bytes = math.prod(dataset.chunks or ()) * dataset.dtype.itemsize
    if chunk_bytes > MAX_CHUNK_BYTES:
        raise DatasetFileCorruptError(
            f"{file.name!r}: {dataset.name!r} has chunks of more than {MAX_CHUNK_BYTES} bytes"
        )


def _problem_of_dataset(dataset: Any) -> str | None:
    """Return why a dataset is refused; None if it is not."""
    properties = dataset.id.get_create_plist()
    if properties.get_layout() == h5py.h5d.VIRTUAL:
        return "is a virtual dataset, with values in other files"
    if properties.get_external_count() > 0:
        return "keeps its values in another file"
    if not dataset.shape:
        return "holds a single value, not a column"
    if h5py.check_ref_dtype(dataset.dtype) is not None:
        return "holds references, not values"
    return None
