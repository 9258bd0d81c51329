"""A page of shared memory for each worker: it shows that it lives and what it is at, and which jobs are still wanted."""

from __future__ import annotations

import mmap
import os
import struct

from data_stack.loader.workers.anonymous_memory import anonymous_memory

__all__ = ["WorkerBoard"]

_PAGE_BYTES = 8192
_NUMBER = struct.Struct("<Q")
_BEATS, _WANTED, _QUESTION, _ANSWER, _LENGTH, _TEXT = 0, 8, 16, 24, 32, 40


class WorkerBoard:
    """What the consumer's process and its workers tell each other while the other one does not listen.

    Each number has one writer and is written in one go, so a reader sees the old or the new one.

    Args:
        descriptor: of the shared memory; it stays the caller's.
        n_pages: one for each worker.
    """

    def __init__(self, descriptor: int, n_pages: int) -> None:
        self._memory = mmap.mmap(descriptor, n_pages * _PAGE_BYTES)

    @classmethod
    def make(cls, n_pages: int) -> tuple[WorkerBoard, int]:
        """A new board, and a descriptor of it that the caller closes."""
        descriptor = anonymous_memory(n_pages * _PAGE_BYTES)
        try:
            return cls(descriptor, n_pages), descriptor
        except BaseException:
            os.close(descriptor)
            raise

    def close(self) -> None:
        """Let go of the memory."""
        self._memory.close()

    def beats(self, page: int) -> int:
        """How often a worker has shown that it lives."""
        return self._number(page, _BEATS)

    def beat(self, page: int) -> None:
        """Show that this worker lives."""
        self._write(page, _BEATS, self._number(page, _BEATS) + 1)

    def wanted(self, page: int) -> int:
        """The generation of the jobs that are wanted; those of earlier ones need not be done."""
        return self._number(page, _WANTED)

    def want(self, page: int, generation: int) -> None:
        """Want no jobs of earlier generations."""
        self._write(page, _WANTED, generation)

    def ask(self, page: int) -> int:
        """Ask a worker what it is at; gives the number of the question."""
        question = self._number(page, _QUESTION) + 1
        self._write(page, _QUESTION, question)
        return question

    def question(self, page: int) -> int | None:
        """The number of the question that this worker has not answered, if there is one."""
        question = self._number(page, _QUESTION)
        return question if question != self._number(page, _ANSWER) else None

    def answer(self, page: int, question: int, text: str) -> None:
        """Say what this worker is at; of a long text, its end."""
        data = text.encode("utf-8", "replace")[-(_PAGE_BYTES - _TEXT) :]
        start = page * _PAGE_BYTES + _TEXT
        self._memory[start : start + len(data)] = data
        self._write(page, _LENGTH, len(data))
        self._write(page, _ANSWER, question)

    def answered(self, page: int, question: int) -> str | None:
        """What a worker said, or None if it has not yet."""
        if self._number(page, _ANSWER) != question:
            return None
        start = page * _PAGE_BYTES + _TEXT
        return self._memory[start : start + self._number(page, _LENGTH)].decode("utf-8", "replace")

    def _number(self, page: int, offset: int) -> int:
        number: int = _NUMBER.unpack_from(self._memory, page * _PAGE_BYTES + offset)[0]
        return number

    def _write(self, page: int, offset: int, number: int) -> None:
        _NUMBER.pack_into(self._memory, page * _PAGE_BYTES + offset, number)
