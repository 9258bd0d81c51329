"""The hooks by which plugins extend data_stack, besides datasets.

A plugin is a module with functions of these names, marked with ``hookimpl``::

    from data_stack.plugins import hookimpl

    @hookimpl
    def data_stack_storage_connectors():
        return {"mongodb": connect}

and an entry point of its distribution in the group ``data_stack``: ``mongodb = "pkg.module"``. It
is imported when a scheme, an engine, a kind of encoder, a type of record column, a format or a
catalogue that is not built in is first asked for, and when a dataset is published. A hook returns
data and has no side effects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from data_stack.codecs import Codec
    from data_stack.dataset.encoders import Encoder
    from data_stack.engines.engine import PreparationEngine
    from data_stack.io.retriever.transfer import Fetch
    from data_stack.io.storage_connectors import StorageConnector

__all__ = ["hookimpl"]

hookspec = pluggy.HookspecMarker("data_stack")
hookimpl = pluggy.HookimplMarker("data_stack")
"""Marks the functions of a plugin that implement a hook."""


@hookspec
def data_stack_storage_connectors() -> Mapping[str, Callable[[str], StorageConnector]]:
    """Name the URL schemes this plugin can store at, e.g. ``{"mongodb": connect}``.

    ``connect(url)`` gets the whole URL, and makes a connector that contacts nothing until it is
    used. The connector pickles as its configuration, and shows no password in its repr or its
    errors.

    Called once, when a scheme that is not built in is first asked for. If a scheme is already
    taken, nothing of the plugin is used, and ``data-stack doctor`` shows the error.
    """
    raise NotImplementedError  # specifications are never run


@hookspec
def data_stack_retrievers() -> Mapping[str, Fetch]:
    """Name the URL schemes this plugin can fetch from, e.g. ``{"s3": fetch}``.

    ``fetch(source, transfer)`` writes all bytes of ``source`` to ``transfer``, from a thread of its
    own, and raises :class:`~data_stack.io.retriever.transfer.SourceError` with the answer of the
    source if it fails. ``retrieve()`` checks digests and sizes, tries mirrors, retries, and stores
    the bytes.

    Called once, when a scheme that is not built in is first asked for. If a scheme is already
    taken, nothing of the plugin is used, and ``data-stack doctor`` shows the error.
    """
    raise NotImplementedError  # specifications are never run


@hookspec
def data_stack_engines() -> Mapping[str, Callable[..., PreparationEngine]]:
    """Name the engines of preparations this plugin brings, e.g. ``{"spark": engine}``.

    A name is for ``data-stack prepare --engine NAME`` and ``DatasetFactory.prepare(engine=NAME)``.
    ``engine(master, attempts=3)`` makes a :class:`~data_stack.engines.PreparationEngine`:
    ``master`` is the address of a cluster, from ``--master`` or ``--address``, or None;
    ``attempts`` is the number of attempts at a task. ``engine`` contacts nothing yet, and raises
    :class:`~data_stack.exception.ConfigError` for arguments that it cannot use.

    Called once, when an engine that is not built in is first asked for. If a name is already taken,
    nothing of the plugin is used, and ``data-stack doctor`` shows the error.
    """
    raise NotImplementedError  # specifications are never run


@hookspec
def data_stack_encoders() -> Mapping[str, type[Encoder]]:
    """Name the kinds of encoders this plugin brings, e.g. ``{"tfidf": TfidfEncoder}``.

    Each is a class derived from :class:`~data_stack.dataset.encoders.Encoder` whose ``kind`` is
    that name: the states of such encoders contain it, and a store, a recipe or another process
    rebuilds them by it. Later versions must read old states.

    Called once, when a kind that is not built in is first asked for. If a kind is already taken,
    nothing of the plugin is used, and ``data-stack doctor`` shows the error.
    """
    raise NotImplementedError  # specifications are never run


@hookspec
def data_stack_codecs() -> Mapping[str, Codec]:
    """Name the types of record columns this plugin brings, each with its codec.

    For example ``{"dicom": DicomCodec()}``. A codec is an object derived from
    :class:`~data_stack.codecs.Codec`. Files contain the type, so later versions must read old
    records. Codecs that a program passes to a writer or reader come first.

    Called once, when a type that is not built in is first asked for. If a type is already taken,
    nothing of the plugin is used, and ``data-stack doctor`` shows the error.
    """
    raise NotImplementedError  # specifications are never run


@hookspec
def data_stack_formats() -> Mapping[str, type[Any]]:
    """Name the formats of files this plugin brings, e.g. ``{"fits": FitsFormat}``.

    Each is a class derived from :class:`~data_stack.formats.format.Format`, or from
    :class:`~data_stack.formats.format.WritableFormat`, whose ``name`` is that name.
    ``data_stack.load`` and ``convert`` then know it by its name, by the suffixes of its files, and
    by what it recognizes in folders. The formats of data_stack take precedence: a suffix that one
    of them has, or a folder that one of them recognizes, is not asked for.

    Called once, when a format, suffix or folder that is not known is first asked for. If another
    plugin has the name already, nothing of the plugin is used, and ``data-stack doctor`` shows the
    error.
    """
    raise NotImplementedError  # specifications are never run


@hookspec
def data_stack_catalogues() -> Mapping[str, Any]:
    """Name the catalogues this plugin brings, by the schemes of their names.

    For example ``{"hf": HuggingFaceCatalogue()}``. Each is an object derived from
    :class:`~data_stack.factories.catalogue.Catalogue`: ``data_stack.load("hf:owner/name")`` asks
    the one of ``"hf"`` for a factory. A scheme is lower-case letters, digits and ``-``. Making a
    catalogue contacts nothing. If a distribution that provides datasets has the scheme as its name,
    ``distribution:name`` takes precedence.

    Called once, when a name with a scheme is first asked for. If a scheme is already taken, nothing
    of the plugin is used, and ``data-stack doctor`` shows the error.
    """
    raise NotImplementedError  # specifications are never run


@hookspec
def data_stack_documents() -> Mapping[str, Callable[[str, Any], bytes]]:
    """Name the documents that this plugin writes beside published datasets.

    For example ``{"croissant.json": describe}``. A name is that of a file in the folder of the
    published dataset. ``describe(name, storage)`` gets the name of a prepared dataset, and the
    store that has it (None for the default store), as :func:`data_stack.load` takes them. It
    returns the bytes of the document, which are equal for equal datasets: without times and paths
    of this machine.

    Called once, when a dataset is first published. If a name is already taken, nothing of the
    plugin is used, and ``data-stack doctor`` shows the error.
    """
    raise NotImplementedError  # specifications are never run
