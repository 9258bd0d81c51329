"""Decodes many records, in threads where the codec leaves the GIL."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from data_stack.codecs.codec import Codec
from data_stack.exception import MissingDependencyError
from data_stack.util.executor import computing
from data_stack.util.processors import n_threads_here
from data_stack.util.request_limit import Request, current_request, decoding_for

__all__ = ["UndecodableError", "decode"]

_MOST_THREADS = 32
#: Less than this is decoded before a thread has woken up.
_BYTES_FOR_THREADS = 1 << 15
#: Each thread takes so many pieces one after the other, so that one that is held up does not hold up all.
_PIECES_PER_THREAD = 4


class UndecodableError(Exception):
    """A codec refused a record; its cause is what the codec raised.

    Attributes:
        place: of the record among those that were to be decoded.
        error: what the codec raised.
    """

    def __init__(self, place: int, error: Exception) -> None:
        super().__init__(place, error)
        self.place, self.error = place, error


def decode(codec: Codec, records: Sequence[bytes]) -> list[Any]:
    """The values of records, which count for the request of this thread.

    Raises:
        UndecodableError: the codec refused one.
        MissingDependencyError: the codec needs a package that is not installed.
    """
    n_records, request = len(records), current_request()
    n_threads = min(_MOST_THREADS, n_threads_here()) if codec.releases_gil and n_records > 1 else 1
    if n_threads == 1 or sum(map(len, records)) < _BYTES_FOR_THREADS:
        return _decode(codec, records, 0, n_records, request)
    n_pieces = min(n_records, n_threads * _PIECES_PER_THREAD)
    pieces = list(pairwise(n_records * piece // n_pieces for piece in range(n_pieces + 1)))
    futures = [computing.submit(_decode, codec, records, start, stop, request) for start, stop in pieces]
    try:
        # From the end on: what no thread has come to is for this one; waiting for it could be waiting for this very thread.
        own = {n: _decode(codec, records, *pieces[n], request) for n in reversed(range(n_pieces)) if futures[n].cancel()}
        return [value for n, future in enumerate(futures) for value in (own[n] if n in own else future.result())]
    finally:
        for future in futures:
            future.cancel()


def _decode(codec: Codec, records: Sequence[bytes], start: int, stop: int, request: Request) -> list[Any]:
    values: list[Any] = []
    try:
        with decoding_for(request):
            for place in range(start, stop):
                value = codec.decode(records[place])
                values.append(value)
                if codec.is_compressed:
                    request.add(value)
    except MissingDependencyError:
        raise
    except Exception as error:  # whatever a codec raises at damaged bytes
        raise UndecodableError(start + len(values), error) from error
    return values
