"""How resources arrive: from web servers, files and installed packages, verified on the way."""

from __future__ import annotations

from data_stack.io.retriever.original import FileRetrieverImpl, HTTPRetrieverImpl, Retriever, RetrieverFactory, RetrieverImplIF
from data_stack.io.retriever.retriever import RetrievedResource, import_file, is_offline, register_scheme, retrieve
from data_stack.io.retriever.transfer import Fetch, SourceError, Transfer
from data_stack.io.web import Limits

__all__ = [
    "Fetch",
    "FileRetrieverImpl",
    "HTTPRetrieverImpl",
    "Limits",
    "RetrievedResource",
    "Retriever",
    "RetrieverFactory",
    "RetrieverImplIF",
    "SourceError",
    "Transfer",
    "import_file",
    "is_offline",
    "register_scheme",
    "retrieve",
]
