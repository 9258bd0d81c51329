"""Writers of record datasets whose power is cut: what was durable is there, and going on ends with the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import fault_records
import pytest
from fault_processes import Fault, FaultProcesses
from fault_size import Figures, spread
from sizes import sized
from small_disk import Ext4, why_no_mounts

from data_stack.formats.records import RecordReader


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Ext4]:
    if reason := why_no_mounts():
        pytest.skip(f"no power can be cut: {reason}")
    disk = Ext4(tmp_path)
    yield disk
    disk.close()


@pytest.mark.parametrize("action", ["power", "powerafter", "powerlog", "powerlogafter"])
@pytest.mark.parametrize("kind", ["columns", "sequences"])
def test_with_the_power_cut_at_any_point_a_dataset_is_gone_on_with(
    processes: FaultProcesses, disk: Ext4, tmp_path: Path, figures: Figures, kind: str, action: str
) -> None:
    whole, said = tmp_path / "whole", str(tmp_path / "said")
    n_points = processes.run("fault_records:write", str(whole), kind, said, fault=Fault(str(whole))).hits

    for point in spread(n_points, sized(1, 200)):
        disk.make_new()
        dataset = disk.path / "dataset"
        fault = Fault(str(disk.path), at=point, action=action)
        processes.run("fault_records:write", str(dataset), kind, said, fault=fault)
        disk.plug_in_again()

        fault_records.write(str(dataset), kind, said)

        assert contents(dataset) == contents(whole)
        with RecordReader(dataset) as reader:
            reader.verify()
        figures.counts["gone on with"] += 1


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "writing.lock"}
