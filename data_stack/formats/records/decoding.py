"""Decodes many records, in threads where the codec leaves Python's lock."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import numpy.typing as npt

from data_stack.codecs.codec import Codec
from data_stack.exception import MissingDependencyError
from data_stack.util.executor import computing
from data_stack.util.processors import n_threads_here
from data_stack.util.request_limit import current_request, decoding_for

__all__ = ["UndecodableError", "decoded", "decoded_into"]

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


def decoded(codec: Codec, records: Sequence[bytes]) -> list[Any]:
    """The values of records, which count for the request of this thread.

    Raises:
        UndecodableError: the codec refused one.
        MissingDependencyError: the codec needs a package that is not installed.
    """
    values: list[Any] = [None] * len(records)
    decode, request = codec.decode, current_request()
    count = request.add if codec.is_compressed else None

    def work(start: int, stop: int) -> None:
        place = start
        try:
            with decoding_for(request):
                for place in range(start, stop):
                    value = values[place] = decode(records[place])
                    if count is not None:
                        count(value)
        except MissingDependencyError:
            raise
        except Exception as error:  # whatever a codec raises at damaged bytes
            raise UndecodableError(place, error) from error

    _run(codec, records, work)
    return values


def decoded_into(codec: Codec, records: Sequence[bytes], out: npt.NDArray[Any]) -> None:
    """Decode records into the rows of ``out``, whose dtype and shape they have; raises as :func:`decoded`."""

    def work(start: int, stop: int) -> None:
        place = start
        try:
            for place in range(start, stop):
                codec.decode_into(records[place], out[place])
        except MissingDependencyError:
            raise
        except Exception as error:  # as above
            raise UndecodableError(place, error) from error

    _run(codec, records, work)


def _run(codec: Codec, records: Sequence[bytes], work: Callable[[int, int], None]) -> None:
    n_records = len(records)
    n_threads = min(_MOST_THREADS, n_threads_here()) if codec.releases_gil and n_records > 1 else 1
    if n_threads == 1 or sum(map(len, records)) < _BYTES_FOR_THREADS:
        work(0, n_records)
        return
    n_pieces = min(n_records, n_threads * _PIECES_PER_THREAD)
    limits = [n_records * piece // n_pieces for piece in range(n_pieces + 1)]
    numbers = itertools.count()

    def take_pieces() -> None:
        while (number := next(numbers)) < n_pieces:
            work(limits[number], limits[number + 1])

    helpers: list[Future[None]] = []
    try:
        for _ in range(min(n_threads, n_pieces) - 1):
            helpers.append(computing.submit(take_pieces))  # noqa: PERF401  # those submitted before a failure are waited for
    except RuntimeError:  # the interpreter is ending
        pass
    try:
        take_pieces()
    finally:
        # One that has not begun by now is not needed, and waiting for it could be waiting for this very thread.
        begun = [helper for helper in helpers if not helper.cancel()]
        errors = [helper.exception() for helper in begun]
    for error in errors:
        if error is not None:
            raise error
