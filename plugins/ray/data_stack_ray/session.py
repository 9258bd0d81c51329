"""The Ray that this process uses: the one it is connected to, one that runs, or one of its own."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

import ray

from data_stack.exception import ConfigError


@contextlib.contextmanager
def ray_session(address: str | None = None) -> Iterator[None]:
    """Connect to Ray for the block, unless this process is connected already.

    A Ray that was started for the block stops with it; any other goes on.

    Args:
        address: as for ``ray.init``: ``"auto"``, ``"10.0.0.1:6379"``, ``"ray://host:10001"``, or
            ``"local"`` for a new Ray; None: ``RAY_ADDRESS``, or the Ray that ``ray start`` started
            on this machine, or a new one.

    Raises:
        ConfigError: there is no Ray at the address, or this process is connected to Ray already,
            maybe to another one.
    """
    if ray.is_initialized():
        if address is not None and address != "auto":
            raise ConfigError(
                f"this process is connected to Ray: leave out the address {address!r:.80}, "
                "or call ray.shutdown()"
            )
        yield
        return

    try:
        ray.init(address, include_dashboard=False, logging_level=logging.ERROR)
    except Exception as error:  # errors of Ray, gRPC or the operating system
        place = address or "this machine"
        raise ConfigError(f"cannot connect to Ray at {place!r:.80}: {error!s:.500}") from error
    try:
        yield
    finally:
        # A Ray that was running before goes on: this process only leaves it.
        ray.shutdown()
