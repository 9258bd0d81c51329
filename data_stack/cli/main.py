"""Runs the ``data-stack`` command."""

from __future__ import annotations

import contextlib
import errno
import io
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence

import click

# Each of these files adds its commands.
from data_stack.cli import (  # noqa: F401
    agents,
    cache,
    checking,
    converting,
    doctor,
    finding,
    new_package,
    parquet,
    preparing,
    publishing,
    reproducing,
    showing,
    stores,
    tracing,
    verifying,
)
from data_stack.cli.group import cli, name_of_option
from data_stack.cli.output import echo
from data_stack.cli.settings import OFFLINE, Settings
from data_stack.exception import (
    ArgumentError,
    ConfigError,
    DatasetNotFoundError,
    DataStackError,
    MalformedIdentifierError,
)
from data_stack.show.markup import printable

# The exit codes; ``data-stack --help`` documents them.
_EXIT_OK = 0
_EXIT_FAILED = 1
_EXIT_USAGE = 2
_EXIT_INTERRUPTED = 130

#: Wrong usage; other errors of data_stack are failures of the data or the operation.
_USAGE_ERRORS = (DatasetNotFoundError, ConfigError, MalformedIdentifierError)

#: Stdout takes nothing more: its reader left, its disk is full, or its disk failed.
_BROKEN_OUTPUT = (errno.EPIPE, errno.ENOSPC, errno.EIO)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Args:
        arguments: the words after ``data-stack``; None: the arguments of the process.

    Returns:
        The exit code.
    """
    _prepare_streams()
    settings = Settings()
    try:
        with _logging_to_stderr(), _restoring_offline():
            code = cli.main(
                args=arguments, prog_name="data-stack", standalone_mode=False, obj=settings
            )
            # If the disk is full or the pipe is closed, this raises here instead of when Python
            # exits, where the error could not be handled.
            sys.stdout.flush()
    except click.Abort:
        return _fail("interrupted", _EXIT_INTERRUPTED)
    except click.ClickException as error:
        error.show()
        return error.exit_code if isinstance(error, click.UsageError) else _EXIT_FAILED
    except (DataStackError, OSError) as error:
        return _fail_with(error, settings)
    return code if isinstance(code, int) else _EXIT_OK


# ---------------------------------------------------------------------- before and after


def _prepare_streams() -> None:
    """Let streams print any text in any locale, and replace closed streams.

    Otherwise the next file that is opened would get the descriptor of a closed stream, and what is
    printed would be written into that file.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # It stays open until the process ends.
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


class PrintableFormatter(logging.Formatter):
    """Escapes control characters in log messages."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record), keep="\n\t")


@contextlib.contextmanager
def _logging_to_stderr() -> Iterator[None]:
    """Write log messages and warnings to stderr, one line each, during the block."""
    logger = logging.getLogger("data_stack")
    level = logger.level
    handler = logging.StreamHandler()
    handler.setFormatter(PrintableFormatter("%(levelname)s: %(message)s"))

    def log_warning(message: Warning | str, *_: object, **__: object) -> None:
        # Without the line of code, which is ours.
        logger.warning("%s", message)

    logger.addHandler(handler)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = log_warning
            yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


@contextlib.contextmanager
def _restoring_offline() -> Iterator[None]:
    """Restore the variable that ``--offline`` sets, for programs that call :func:`main`."""
    offline = os.environ.get(OFFLINE)
    try:
        yield
    finally:
        os.environ.pop(OFFLINE, None)
        if offline is not None:
            os.environ[OFFLINE] = offline


# ---------------------------------------------------------------------- errors


def _fail_with(error: DataStackError | OSError, settings: Settings) -> int:
    """Print an error, and return its exit code."""
    if settings.debug:
        echo(traceback.format_exc().rstrip("\n"), err=True)
    if not isinstance(error, DataStackError) and error.errno in _BROKEN_OUTPUT:
        _discard_output()
    if isinstance(error, BrokenPipeError):
        return _EXIT_FAILED

    message = str(error)
    if isinstance(error, ArgumentError) and settings.command is not None:
        message = error.message_naming(name_of_option(settings.command, error.argument))
    code = _EXIT_USAGE if isinstance(error, _USAGE_ERRORS) else _EXIT_FAILED
    return _fail(message, code)


def _discard_output() -> None:
    """Let stdout discard the rest: flushing its buffer when Python exits must not fail again."""
    stdout_descriptor = 1
    with open(os.devnull, "wb") as null_device:
        os.dup2(null_device.fileno(), stdout_descriptor)


def _fail(message: str, code: int) -> int:
    """Print a message on stderr, and return the exit code."""
    with contextlib.suppress(OSError):  # stderr may be closed, too
        echo(f"data-stack: {message}", err=True)
    return code
