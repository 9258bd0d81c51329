"""Forks children out of one warm interpreter, arms crashpoint.c in them, and runs a function of the kit in each.

Started by fault_processes.py with crashpoint.so preloaded. Importing data_stack takes as long as preparing a small dataset
five times, so it is done once for all. A line of JSON on stdin is a request, a line on stdout its answer.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import importlib
import json
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from data_stack.exception import DataStackError


def arm(fault: dict[str, Any]) -> None:
    """Tell crashpoint.so what to do from here on."""
    library = ctypes.CDLL(None)
    library.cp_shift_clock(ctypes.c_long(fault.get("clock_seconds", 0)))
    library.cp_arm(
        os.fsencode(fault.get("folder", "")),
        ctypes.c_long(fault.get("at", 0)),
        fault.get("action", "count").encode(),
        fault.get("error", 0),
        int(fault.get("sticky", False)),
        int(fault.get("looking", False)),
        int(fault.get("sockets", False)),
    )


def n_hits() -> int:
    """Number of calls counted since the last :func:`arm`."""
    return int(ctypes.CDLL(None).cp_count())


def open_handles() -> dict[str, str]:
    """What the file descriptors of this process stand for."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the one that lists
            found[name] = os.readlink(f"/proc/self/fd/{name}")
    return found


def left_behind(handles: dict[str, str]) -> list[str]:
    """Descriptors and threads that were not there before, once those that are about to end have ended."""
    until = time.monotonic() + 5
    while True:
        gc.collect()
        left = [f"{number}: {what}" for number, what in open_handles().items() if number not in handles]
        left += [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
        if not left or time.monotonic() > until:
            return left
        time.sleep(0.02)


def run(request: dict[str, Any]) -> dict[str, Any]:
    """Call the function of a request; what it returned or raised, and what it left behind in this process."""
    module, _, name = request["function"].partition(":")
    function = getattr(importlib.import_module(module), name)
    answer: dict[str, Any] = {"value": None, "error": None, "own": None, "message": "", "left": []}
    handles = open_handles()
    arm(request["fault"])
    try:
        answer["value"] = function(*request["arguments"])
    except BaseException as error:
        answer["error"], answer["own"] = type(error).__name__, isinstance(error, DataStackError)
        answer["message"] = traceback.format_exc()
    answer["hits"] = n_hits()
    arm({})
    if request["look_for_left"]:
        answer["left"] = left_behind(handles)
    return answer


def child(request: dict[str, Any]) -> None:
    """Everything that happens in a forked child."""
    status = 70
    try:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: not to outlive a test that is killed
        os.setsid()
        output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        for standard in (1, 2):
            os.dup2(output, standard)
        for handle in (output, nothing):
            os.close(handle)
        if request["user"] is not None:
            os.setgroups([])
            os.setgid(request["user"])
            os.setuid(request["user"])
        os.environ.update(request["environment"])
        answer = json.dumps(run(request))
        sys.stdout.flush()
        sys.stderr.flush()
        with open(request["output"] + ".half", "w") as file:
            file.write(answer)
        os.replace(request["output"] + ".half", request["output"] + ".answer")  # a kill leaves all of it or nothing
        status = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def waited(pid: int, timeout_seconds: float) -> int | None:
    """The exit status of a child (negative: the signal that ended it); None if it is still running."""
    until, pause = time.monotonic() + timeout_seconds, 0.0005
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > until:
            return None
        time.sleep(pause)
        pause = min(2 * pause, 0.02)


def warm_up() -> None:
    """Have all imported that is imported late: a child may be a user who cannot read this interpreter's files."""
    import fault_dataset

    from data_stack.codecs.registry import registered_types
    from data_stack.reproduce.recipes import import_layers

    import_layers()
    registered_types()
    with tempfile.TemporaryDirectory() as folder:
        sources = str(fault_dataset.write_sources(Path(folder)))
        store = {"url": f"file://{folder}/store?cache={folder}/cache"}
        fault_dataset.heal(store, sources)
        fault_dataset.use(store, sources)


def main() -> None:
    warm_up()
    gc.freeze()
    faulthandler.register(signal.SIGUSR1)  # who waits too long asks where we are; children inherit it
    print("ready", flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            answer = waited(request["wait"], request["timeout_seconds"])
        else:
            answer = os.fork()
            if answer == 0:
                child(request)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
