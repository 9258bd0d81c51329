"""Reports what loaders do as metrics of OpenTelemetry, if the program has configured it."""

from __future__ import annotations

import sys
import time
from typing import Any, Final

from data_stack.loader.delivery import Delivery, DeliveryObserver
from data_stack.loader.ranks import Shard

#: How often the counters grow: a loader may deliver more batches in a second than a counter can
#: take without slowing it down.
_SECONDS_BETWEEN_REPORTS: Final = 0.1

#: The names of providers of the API that report nothing, as no other one was set.
_SILENT_PROVIDERS: Final = frozenset(("_ProxyMeterProvider", "NoOpMeterProvider"))


#: The counters by their names without the package, each with its unit.
_UNITS: Final = {
    "loader.batches": "{batch}",
    "loader.samples": "{sample}",
    "loader.bytes": "By",
    "loader.wait": "s",
}

#: What each counter counts.
_DESCRIPTIONS: Final = {
    "loader.batches": "batches that loaders delivered",
    "loader.samples": "samples in these batches",
    "loader.bytes": "size of the arrays in these batches",
    "loader.wait": "how long consumers waited for these batches",
}


class MetricsReporter(DeliveryObserver):
    """Adds the batches of a loader to the counters of OpenTelemetry.

    The counters are ``data_stack.loader.batches``, ``data_stack.loader.samples``,
    ``data_stack.loader.bytes`` (``By``) and ``data_stack.loader.wait`` (``s``: how long the
    consumer waited for batches). They have the attributes ``rank`` and ``world``.

    Nothing is reported unless the program has imported ``opentelemetry.metrics`` and set a
    provider before the iteration begins.
    """

    #: The counters by their names without the package; None if the program has no provider.
    _counters: dict[str, Any] | None
    #: Tells apart the ranks of one training.
    _attributes: dict[str, int]
    #: What the counters do not have yet, by their names without the package.
    _amounts: dict[str, float]
    #: When the counters last grew.
    _reported_at: float

    def __init__(self) -> None:
        self._counters = None
        self._attributes = {}
        self._amounts = {}
        self._reported_at = 0.0

    def __reduce__(self) -> tuple[type[MetricsReporter], tuple[()]]:
        return MetricsReporter, ()

    def begin(self, shard: Shard) -> bool:
        self._counters = _find_counters()
        self._attributes = {"rank": shard.rank, "world": shard.world}
        self._forget_amounts()
        return self._counters is not None

    def add(self, delivery: Delivery) -> None:
        self._amounts["loader.batches"] += 1
        self._amounts["loader.samples"] += len(delivery.job.indices)
        self._amounts["loader.bytes"] += delivery.made.n_bytes
        self._amounts["loader.wait"] += delivery.delivered_at - delivery.asked_at
        if delivery.delivered_at - self._reported_at > _SECONDS_BETWEEN_REPORTS:
            self._report()

    def end(self) -> None:
        self._report()

    def _report(self) -> None:
        if self._counters is None:
            return
        for name, counter in self._counters.items():
            counter.add(self._amounts[name], self._attributes)
        self._forget_amounts()

    def _forget_amounts(self) -> None:
        self._amounts = dict.fromkeys(_UNITS, 0)
        self._reported_at = time.perf_counter()


def _find_counters() -> dict[str, Any] | None:
    """Return the counters of the program's provider; None without one. Imports nothing."""
    metrics: Any = sys.modules.get("opentelemetry.metrics")
    if metrics is None:
        return None
    provider = metrics.get_meter_provider()
    if type(provider).__name__ in _SILENT_PROVIDERS:
        return None
    meter = provider.get_meter("data_stack")
    counters = {}
    for name, unit in _UNITS.items():
        counters[name] = meter.create_counter(
            f"data_stack.{name}", unit=unit, description=_DESCRIPTIONS[name]
        )
    return counters
