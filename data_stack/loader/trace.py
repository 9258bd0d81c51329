"""Writes what a loader did as a trace, which https://ui.perfetto.dev shows."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any, Final

from data_stack.exception import ConfigError
from data_stack.loader.batch_maker import Reading
from data_stack.loader.delivery import Delivery, DeliveryObserver
from data_stack.loader.ranks import Shard
from data_stack.util.logger import logger

#: The number of events after which a trace ends, at some 200 MB. Perfetto takes minutes to open
#: more.
_MAX_EVENTS: Final = 1_000_000

#: The share of an iteration that writing its trace may take.
_MAX_SHARE: Final = 0.008

#: How often events are written. A program that is killed loses those since the last time.
_SECONDS_BETWEEN_WRITES: Final = 1.0

#: Events are written earlier if this number of them is kept.
_MAX_KEPT_EVENTS: Final = 4096

_Row = tuple[int, int]
"""The numbers of a process and of one of its threads, whose spans stand in one row."""


class TraceWriter(DeliveryObserver):
    """Writes a trace of all iterations of a loader to a file.

    The format is the JSON array of the Trace Event Format
    (https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU), which needs
    no closing bracket. So a program that is killed leaves a trace that opens.

    Each worker has a row with the spans ``read``, ``collate`` and ``transform``. In ``read`` lie
    ``fetch``, the time that it waited for bytes of resources, drawn as one span at the start
    although the waits are spread over the reading, and ``decode``, the remaining time. The consumer
    has a row with ``wait``, ``convert`` and ``use``, which is its own work between two batches. A
    counter shows the batches in flight.

    Writing takes less than a hundredth of the time. Batches that come faster than that allows are
    left out, and the next one says how many (``n_left_out``). So are spans of less than a
    microsecond. The samples of several small batches are read in one span, ``n_batches_read``. The
    trace ends after a million events, with a warning.

    Args:
        path: the file. Rank 3 of several writes ``trace.rank3.json`` for ``trace.json``. A file
            that is there is replaced when the first iteration begins.
        max_events: the number of events after which the trace ends.

    Raises:
        ConfigError: ``path`` is no path, or its folder does not exist or cannot be written.
    """

    #: The file that the caller named.
    _path: Path
    #: The process for which it was named.
    _process_id: int
    #: The file that is written; None before the first iteration.
    _target: Path | None
    #: The number of events after which the trace ends.
    _max_events: int
    #: Events that are not written yet, as JSON.
    _events: list[str]
    #: The number of events so far.
    _n_events: int
    #: When events were last written.
    _written_at: float
    #: The rows that have a name.
    _named_rows: set[_Row]
    #: The row of the consumer.
    _consumer: _Row
    #: The request for samples that was drawn last; it may be for several batches.
    _drawn_reading: Reading | None
    #: When the consumer received the batch before; None at the start of an iteration.
    _delivered_at: float | None
    #: When the iteration began.
    _began_at: float
    #: The time of the processor that this object has taken in this iteration.
    _working_seconds: float
    #: The number of batches since the last one that was drawn.
    _n_left_out: int

    def __init__(self, path: str | os.PathLike[str], *, max_events: int = _MAX_EVENTS) -> None:
        try:
            self._path = Path(os.fspath(path))
        except TypeError:
            raise ConfigError(
                f"trace must be the path of a file, such as 'trace.json', got {path!r:.80}"
            ) from None
        _check_is_writable(self._path)
        self._max_events = max_events
        self._process_id = os.getpid()
        self._begin_file()

    def _begin_file(self) -> None:
        self._target = None
        self._events = []
        self._n_events = 0
        self._written_at = 0.0
        self._named_rows = set()
        self._consumer = (0, 0)
        self._begin_iteration()

    def _begin_iteration(self) -> None:
        self._drawn_reading = None
        self._delivered_at = None
        self._began_at = time.perf_counter()
        self._working_seconds = 0.0
        self._n_left_out = 0

    def __getstate__(self) -> dict[str, Any]:
        return {
            "path": self._path,
            "process_id": self._process_id,
            "max_events": self._max_events,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._path = state["path"]
        self._process_id = state["process_id"]
        self._max_events = state["max_events"]
        self._begin_file()

    # ------------------------------------------------------------------ an iteration

    def begin(self, shard: Shard) -> bool:
        process_id, _ = self._consumer
        if process_id != os.getpid():
            # A fork has a file of its own. What was kept here is written by the parent.
            self._begin_file()
        if self._target is None:
            self._target = self._choose_target(shard)
            _begin_array(self._target)
        self._consumer = (os.getpid(), threading.get_native_id())
        self._begin_iteration()
        return True

    def add(self, delivery: Delivery) -> None:
        if self._n_events >= self._max_events:
            return
        elapsed_seconds = delivery.delivered_at - self._began_at
        if self._working_seconds > _MAX_SHARE * elapsed_seconds:
            self._n_left_out += 1
            self._delivered_at = delivery.delivered_at
            return
        working_seconds_before = time.thread_time()
        facts = _describe(delivery, self._n_left_out)
        self._draw_making(delivery, facts)
        self._draw_consumer(delivery, facts)
        self._n_left_out = 0
        if len(self._events) >= _MAX_KEPT_EVENTS or self._is_time_to_write():
            self._write()
        if self._n_events >= self._max_events:
            self._end_trace()
        self._working_seconds += time.thread_time() - working_seconds_before

    def end(self) -> None:
        if self._n_left_out > 0 and self._n_events < self._max_events:
            self._add_note(
                f"the last {self._n_left_out:,} batches are left out, as they came too fast"
            )
        self._write()

    def _choose_target(self, shard: Shard) -> Path:
        """Return the file of this process; no two processes write to one file."""
        suffix = ""
        if shard.world > 1:
            suffix = f".rank{shard.rank}"
        elif os.getpid() != self._process_id:
            suffix = f".pid{os.getpid()}"
        return self._path.with_name(f"{self._path.stem}{suffix}{self._path.suffix}")

    def _is_time_to_write(self) -> bool:
        return time.perf_counter() - self._written_at > _SECONDS_BETWEEN_WRITES

    # ------------------------------------------------------------------ spans

    def _draw_making(self, delivery: Delivery, facts: str) -> None:
        """Draw what the maker of a batch did, in the row of its thread."""
        made = delivery.made
        reading = made.reading
        row = (reading.process_id, reading.thread_id)
        self._name_row(row)
        if reading is not self._drawn_reading:
            self._drawn_reading = reading
            self._draw_reading(reading, row, facts)
        collated_at = made.collate_began_at + made.collate_seconds
        transformed_at = collated_at + made.transform_seconds
        self._draw("collate", row, made.collate_began_at, collated_at, facts)
        self._draw("transform", row, collated_at, transformed_at, facts)

    def _draw_reading(self, reading: Reading, row: _Row, facts: str) -> None:
        """Draw a request for the samples of one or several batches."""
        fetched_at = reading.began_at + reading.fetch_seconds
        read_at = reading.began_at + reading.seconds
        self._draw("read", row, reading.began_at, read_at, facts)
        if reading.fetch_seconds > 0:
            self._draw("fetch", row, reading.began_at, fetched_at, "{}")
            self._draw("decode", row, fetched_at, read_at, "{}")

    def _draw_consumer(self, delivery: Delivery, facts: str) -> None:
        """Draw what the consumer did, in the row of its thread."""
        self._name_row(self._consumer)
        if self._delivered_at is not None and self._n_left_out == 0:
            self._draw("use", self._consumer, self._delivered_at, delivery.asked_at, "{}")
        self._delivered_at = delivery.delivered_at

        converting_at = delivery.asked_at + delivery.making_seconds
        self._draw("wait", self._consumer, delivery.asked_at, converting_at, facts)
        self._draw("convert", self._consumer, converting_at, delivery.delivered_at, facts)
        process_id, _ = self._consumer
        self._add(
            f'{{"name":"batches in flight","ph":"C",'
            f'"ts":{_microseconds(delivery.delivered_at)},"pid":{process_id},'
            f'"args":{{"batches":{delivery.n_in_flight}}}}}'
        )

    def _draw(self, name: str, row: _Row, began_at: float, ended_at: float, facts: str) -> None:
        """Draw a span, unless it is shorter than a microsecond.

        It is formatted by hand, as ``json.dumps`` takes five times as long.

        Args:
            name: what was done, without characters that JSON escapes.
            row: the row of the thread that did it.
            began_at: when it began, by ``time.perf_counter()``.
            ended_at: when it ended.
            facts: what the trace shows of the span besides, as JSON.
        """
        # Both ends are rounded, so that a span does not end after the one that it is in.
        start = _microseconds(began_at)
        duration = round(_microseconds(ended_at) - start, 3)
        if duration < 1:
            return
        process_id, thread_id = row
        self._add(
            f'{{"name":"{name}","cat":"loader","ph":"X","ts":{start},"dur":{duration},'
            f'"pid":{process_id},"tid":{thread_id},"args":{facts}}}'
        )

    def _name_row(self, row: _Row) -> None:
        """Name the row of a thread, and its process, the first time that something stands there."""
        if row in self._named_rows:
            return
        self._named_rows.add(row)
        process_id, thread_id = row
        process_of_consumer, _ = self._consumer
        process_name = "training" if process_id == process_of_consumer else "worker process"
        thread_name = "consumer" if row == self._consumer else "worker"
        for kind, name in (("process_name", process_name), ("thread_name", thread_name)):
            self._add(
                f'{{"name":"{kind}","ph":"M","pid":{process_id},"tid":{thread_id},'
                f'"args":{{"name":"{name}"}}}}'
            )

    # ------------------------------------------------------------------ the file

    def _add(self, event: str) -> None:
        self._events.append(event)
        self._n_events += 1

    def _end_trace(self) -> None:
        """Note in the trace that it ends here, and warn."""
        text = f"the trace ends here, after {self._n_events:,} events"
        self._add_note(text)
        self._write()
        logger.warning("%s: %s; the loader goes on without it", self._target, text)

    def _add_note(self, text: str) -> None:
        """Write a text beside the events, at this time."""
        process_id, thread_id = self._consumer
        self._add(
            f'{{"name":"{text}","ph":"i","s":"g","ts":{_microseconds(time.perf_counter())},'
            f'"pid":{process_id},"tid":{thread_id}}}'
        )

    def _write(self) -> None:
        """Write the events that were kept. A disk that is full ends the trace, not the training."""
        self._written_at = time.perf_counter()
        if self._target is None or not self._events:
            return
        text = "".join(f"{event},\n" for event in self._events)
        self._events = []
        try:
            with self._target.open("a", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            self._n_events = self._max_events
            logger.warning(
                "%s: the trace ends here (%s); the loader goes on without it", self._target, error
            )


def _describe(delivery: Delivery, n_left_out: int) -> str:
    """Return what a trace says of a batch, as JSON."""
    job = delivery.job
    reading = delivery.made.reading
    text = (
        f'{{"epoch":{job.epoch},"step":{job.step},"n_samples":{len(job.indices)},'
        f'"n_bytes":{delivery.made.n_bytes}'
    )
    if reading.n_batches > 1:
        text += f',"n_batches_read":{reading.n_batches}'
    if n_left_out > 0:
        text += f',"n_left_out":{n_left_out}'
    return text + "}"


def _microseconds(seconds: float) -> float:
    return round(seconds * 1e6, 3)


def _check_is_writable(path: Path) -> None:
    """Check that a file can be made.

    Raises:
        ConfigError: it cannot.
    """
    problem = ""
    folder = path.parent
    if not folder.is_dir():
        problem = f"the folder {str(folder)!r} does not exist"
    elif path.is_dir():
        problem = "it is a folder"
    elif not os.access(folder, os.W_OK):
        problem = f"the folder {str(folder)!r} cannot be written"
    if problem:
        raise ConfigError(f"the trace cannot be written to {str(path)!r}: {problem}")


def _begin_array(path: Path) -> None:
    """Write the start of a trace; what the file held before is lost.

    Raises:
        ConfigError: the file cannot be written.
    """
    try:
        path.write_text("[\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"the trace cannot be written to {str(path)!r}: {error}") from error
