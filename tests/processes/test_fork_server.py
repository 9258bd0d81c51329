"""Processes are forks of a server that holds imports: they are as this process is now, and end with
it.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import random
import signal
import socket
import sys
import tempfile
from dis import opname
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from process_harness import (
    eventually,
    frozen,
    is_running,
    open_handles,
    run_python,
    start_python,
    until,
)
from sizes import sized

from data_stack.processes import fork_server
from data_stack.processes.channel import Channel, Payload
from data_stack.processes.fork_server import ForkedProcess, hold
from data_stack.util.group_rights import sync_folder
from data_stack.util.interrupts import interrupts_deferred

HERE = "tests.processes.test_fork_server"

#: After these, CPython calls the handlers of signals that have arrived.
INSTRUCTIONS_THAT_LET_SIGNALS_IN = ("CALL", "JUMP_BACKWARD", "RESUME")


def say_what_it_is(descriptor: int) -> None:
    facts = [
        os.environ.get("COLOUR"),
        os.environ.get("SHAPE"),
        os.getcwd(),
        sys.path[-1],
        random.random(),
        np.random.random(),
    ]
    os.write(descriptor, json.dumps(facts).encode())


def print_and_exit(status: int) -> None:
    os.write(1, b"to standard output")
    os._exit(status)


def facts_of_a_process() -> list[Any]:
    ours, theirs = socket.socketpair()
    with ours, ours.makefile("rb") as facts:
        with theirs:
            process = ForkedProcess(f"{HERE}:say_what_it_is", [], [theirs.fileno()])
        told = facts.read()
    assert process.poll(60) == 0
    return list(json.loads(told))


def test_a_process_has_the_environment_folder_and_path_of_now(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("COLOUR", "red")
    monkeypatch.setenv("SHAPE", "round")
    assert facts_of_a_process()[:2] == ["red", "round"]
    server = fork_server._server

    monkeypatch.setenv("COLOUR", "blue")
    monkeypatch.delenv("SHAPE")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, "/far/away"])

    assert facts_of_a_process()[:4] == ["blue", None, str(tmp_path), "/far/away"]
    assert fork_server._server is server
    tmp_path.rmdir()
    assert ForkedProcess("os:_exit", [5]).poll(60) == 5  # it needs no current folder


def test_a_variable_that_libraries_read_at_import_starts_another_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running = ForkedProcess("signal:pause")
    before = {server.pid for server in fork_server._servers}

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    hold([])

    assert {server.pid for server in fork_server._servers} > before
    assert running.poll(0.5) is None  # it keeps its server
    running.kill()
    assert running.poll(60) == -signal.SIGKILL


def test_each_process_draws_other_global_random_numbers() -> None:
    hold(["numpy.random"])
    drawn = [facts_of_a_process()[4:] for _ in range(3)]

    assert len({python for python, _ in drawn}) == len({numpy for _, numpy in drawn}) == 3


def test_how_a_process_ended_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    with tempfile.TemporaryFile() as output:
        process = ForkedProcess(f"{HERE}:print_and_exit", [7], output=output)
        assert process.poll(60) == 7
        output.seek(0)
        assert output.read() == b"to standard output"
    assert process.poll() == 7

    running = ForkedProcess("signal:pause")
    assert running.poll(0.05) is None
    running.kill()
    assert running.poll(60) == -signal.SIGKILL
    running.kill()  # twice is fine

    assert ForkedProcess(f"{HERE}:is_missing").poll(60) == 1
    assert "has no attribute 'is_missing'" in capfd.readouterr().err


def test_after_the_server_was_killed_another_one_starts() -> None:
    running = ForkedProcess("signal:pause")
    server: Any = fork_server._server

    os.kill(server.pid, signal.SIGKILL)

    assert running.poll(60) == -signal.SIGKILL  # the processes end with it
    assert ForkedProcess(f"{HERE}:print_and_exit", [3], output=sys.__stderr__).poll(60) == 3


def test_processes_end_with_a_process_that_is_killed() -> None:
    program = """
import signal
from data_stack.processes.fork_server import ForkedProcess
print(ForkedProcess("signal:pause").pid, flush=True)
signal.pause()
"""
    with start_python("-c", program) as script:
        assert script.stdout is not None
        pid = int(script.stdout.readline())
        assert is_running(pid)
        script.kill()

    assert until(lambda: not is_running(pid))


IN_A_SIGNAL_HANDLER = """
import gc, os, signal, sys, threading, time
from data_stack.processes import fork_server
from data_stack.processes.fork_server import ForkedProcess, hold

class Owner:
    def __init__(self):
        self.cycle, self.process = self, ForkedProcess("signal:pause")
    def __del__(self):
        self.process.kill()
        print("status", self.process.poll(60), flush=True)

def collect():
    gc.collect()

def fork():
    if os.fork() == 0:
        os._exit(0)
    os.wait()

def start():
    print("status", ForkedProcess("os:_exit", [4]).poll(60), flush=True)

def is_stopped(pid):
    with open(f"/proc/{{pid}}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] == "T"

gc.disable()
Owner()
server = fork_server._server.pid
os.kill(server, signal.SIGSTOP)
while not is_stopped(server):
    time.sleep(0.01)

is_handled = False

# The alarm comes again and again, until the start of the process waits for the server.
def handle(number, frame):
    global is_handled
    if is_handled or frame.f_code.co_name != "is_readable":
        return
    is_handled = True
    signal.setitimer(signal.ITIMER_REAL, 0)
    os.kill(server, signal.SIGCONT)
    {what}()
    print("handled", flush=True)

signal.signal(signal.SIGALRM, handle)
signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
print("status", ForkedProcess("os:_exit", [3]).poll(60), flush=True)
"""


@pytest.mark.parametrize(
    ("what", "printed"),
    [
        ("fork", ["handled", "status 3"]),
        ("collect", ["status -9", "handled", "status 3"]),
        ("start", ["status 4", "handled", "status 3"]),
    ],
)
def test_a_signal_handler_may_use_processes_while_one_starts(what: str, printed: list[str]) -> None:
    output, errors = run_python("-c", IN_A_SIGNAL_HANDLER.format(what=what))

    assert output.splitlines()[: len(printed)] == printed, errors


def test_another_server_takes_the_place_of_one_that_was_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running = ForkedProcess("signal:pause")
    server: Any = fork_server._server
    monkeypatch.setattr(fork_server, "_ANSWER_SECONDS", 3.0)  # a new server needs some time, too

    with frozen(server.pid):
        # Another server may be that slow on a busy machine.
        process = eventually(lambda: ForkedProcess("os:_exit", [5]), OSError)
        assert process.poll(60) == 5

    assert fork_server._server is not server
    assert running.poll() is None
    running.kill()
    assert running.poll(60) == -signal.SIGKILL


def exchange_arrays_and_start_a_process() -> None:
    with interrupts_deferred():
        sockets = socket.socketpair()
    with sockets[0], sockets[1], contextlib.closing(Payload(np.arange(9000))) as payload:
        Channel(sockets[0]).send("head", payload)
        assert len(Channel(sockets[1]).receive()[1]()) == 9000  # type: ignore[index, misc]  # it brings an array
    assert ForkedProcess("os:_exit", [6]).poll(60) == 6


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # what is lost is closed, with a ResourceWarning
def test_ctrl_c_at_any_instruction_leaves_no_descriptor_open() -> None:
    moment = n_to_come = 0
    last_instructions: dict[FrameType, str] = {}

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal n_to_come
        frame.f_trace_opcodes = frame.f_code.co_filename != __file__
        if event == "opcode":
            last_instruction = last_instructions.get(frame, "RESUME")
            last_instructions[frame] = opname[frame.f_code.co_code[frame.f_lasti]]
            lets_signals_in = last_instruction.startswith(INSTRUCTIONS_THAT_LET_SIGNALS_IN)
            # not in a handler without a line, which is entered without a look at signals
            is_handler = sys.exc_info()[0] is not None or frame.f_lineno is None
            if lets_signals_in and not is_handler:
                n_to_come -= 1
                if n_to_come == 0:
                    signal.raise_signal(signal.SIGINT)
        if event == "return":
            last_instructions.pop(frame, None)
        return trace

    exchange_arrays_and_start_a_process()
    before, tracer = set(open_handles()), sys.gettrace()
    while n_to_come <= 0:
        moment += sized(37, 2)
        n_to_come = moment
        with contextlib.suppress(KeyboardInterrupt):
            sys.settrace(trace)
            try:
                exchange_arrays_and_start_a_process()
            finally:
                sys.settrace(tracer)
                last_instructions.clear()  # the frames hold descriptors
            assert n_to_come > 0, f"Ctrl-C at instruction {moment} was lost"
        # collecting garbage, which takes long, only where it is needed
        assert until(lambda: set(open_handles()) == before or gc.collect() < 0), moment
    gc.collect()  # here, where warnings of lost sockets are expected, not in a later test


def test_an_interrupt_after_opening_a_folder_leaves_no_descriptor(tmp_path: Path) -> None:
    def interrupt(frame: FrameType, event: str, function: object) -> None:
        if event == "c_return" and len(open_handles()) > n_before:
            sys.setprofile(None)
            raise KeyboardInterrupt

    n_before, profiler = len(open_handles()), sys.getprofile()
    with pytest.raises(KeyboardInterrupt):
        sys.setprofile(interrupt)
        try:
            sync_folder(str(tmp_path))
        finally:
            sys.setprofile(profiler)

    assert len(open_handles()) == n_before
