"""Parts of a broker by themselves, on simulated disks."""

from __future__ import annotations

from tests.sim.disk import SimulatedDisk
from tidelog.base.config import BrokerSettings
from tidelog.broker.data_plane.disks import Disks
from tidelog.broker.kernel import Kernel
from tidelog.broker.standing import Standing
from tidelog.log.directory import LogDirectory


def make_kernel(is_sharing: bool = False, **properties: str) -> Kernel:
    settings = BrokerSettings({name.replace("_", "."): value for name, value in properties.items()})
    return Kernel(settings, bytes, is_sharing)


def make_disks(kernel: Kernel, count: int = 1) -> Disks:
    directories = [LogDirectory(SimulatedDisk().root) for _ in range(count)]
    return Disks(kernel, Standing(kernel.node_id), directories)
