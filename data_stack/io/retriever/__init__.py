"""How resources arrive: from web servers, files and installed packages, verified on the way."""

from data_stack.io.offline import is_offline as is_offline
from data_stack.io.retriever.delivery import RetrievedResource as RetrievedResource
from data_stack.io.retriever.imported_file import import_file as import_file
from data_stack.io.retriever.retrieval import retrieve as retrieve
from data_stack.io.retriever.retrievers import FileRetrieverImpl as FileRetrieverImpl
from data_stack.io.retriever.retrievers import HTTPRetrieverImpl as HTTPRetrieverImpl
from data_stack.io.retriever.retrievers import Retriever as Retriever
from data_stack.io.retriever.retrievers import RetrieverFactory as RetrieverFactory
from data_stack.io.retriever.retrievers import RetrieverImplIF as RetrieverImplIF
from data_stack.io.retriever.schemes import register_scheme as register_scheme
from data_stack.io.retriever.transfer import Fetch as Fetch
from data_stack.io.retriever.transfer import SourceError as SourceError
from data_stack.io.retriever.transfer import Transfer as Transfer
from data_stack.io.web import Limits as Limits

__all__ = [
    "FileRetrieverImpl",
    "HTTPRetrieverImpl",
    "RetrievedResource",
    "Retriever",
    "RetrieverFactory",
    "RetrieverImplIF",
    "import_file",
    "retrieve",
]
