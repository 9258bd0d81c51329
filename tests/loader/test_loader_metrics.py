"""The metrics of a loader for OpenTelemetry, each in a process of its own: a provider is global."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

PROGRAM = """
import json, sys
import numpy as np
import data_stack
from data_stack.dataset.iterator import SequenceDatasetIterator

def iterate(shard):
    data = SequenceDatasetIterator([np.arange(100, dtype=np.int64)])
    for _ in data_stack.Loader(data, 10, shard=shard):
        pass

def amounts_of(reader):
    amounts = {}
    for resource in reader.get_metrics_data().resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                (point,) = metric.data.data_points
                amounts[metric.name] = [point.value, dict(point.attributes), metric.unit]
    return amounts
"""


def run(program: str) -> Any:
    finished = subprocess.run(
        [sys.executable, "-c", PROGRAM + program],
        capture_output=True,
        check=True,
        timeout=120,
        text=True,
    )
    return json.loads(finished.stdout)


def test_a_configured_program_counts_batches_samples_bytes_and_seconds() -> None:
    amounts = run("""
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

reader = InMemoryMetricReader()
metrics.set_meter_provider(MeterProvider([reader]))
iterate((1, 2))
iterate((1, 2))
print(json.dumps(amounts_of(reader)))
""")

    attributes = {"rank": 1, "world": 2}
    assert amounts["data_stack.loader.batches"] == [10, attributes, "{batch}"]
    assert amounts["data_stack.loader.samples"] == [100, attributes, "{sample}"]
    assert amounts["data_stack.loader.bytes"] == [800, attributes, "By"]
    seconds, _, unit = amounts["data_stack.loader.wait"]
    assert seconds > 0
    assert unit == "s"


def test_without_a_provider_nothing_is_imported_or_reported() -> None:
    assert (
        run("""
iterate((0, 1))
print(json.dumps([name for name in sys.modules if name.startswith("opentelemetry")]))
""")
        == []
    )


def test_a_program_that_only_imports_the_package_runs_as_before() -> None:
    assert (
        run("""
from opentelemetry import metrics
iterate((0, 1))
print(json.dumps(type(metrics.get_meter_provider()).__name__))
""")
        == "_ProxyMeterProvider"
    )
