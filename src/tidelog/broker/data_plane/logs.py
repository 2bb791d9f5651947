"""The logs over one life of this broker: claimed and opened at the start, settled when it is registered,
closed at a clean stop.

**Invariant:** a mark in a log's folder goes only when the store knows what the log has lost (R16).
"""

from __future__ import annotations

from collections.abc import Callable

from tidelog.base.events import info, warning
from tidelog.base.limits import FLUSHES_MAX, LOSSES_TOLD_MAX
from tidelog.broker.data_plane.checkpoints import Checkpoints
from tidelog.broker.data_plane.disks import FULL_DISK, Disks
from tidelog.broker.data_plane.hosting import Hosting
from tidelog.broker.data_plane.partitions import Partitions
from tidelog.broker.data_plane.replicas import Replicas
from tidelog.broker.data_plane.statements import Statements
from tidelog.broker.kernel import Kernel
from tidelog.broker.standing import Standing
from tidelog.cluster.controller import encode_id
from tidelog.cluster.elections import recovered_alone
from tidelog.cluster.facts import BrokerEpoch
from tidelog.cluster.image import Image
from tidelog.cluster.store import Operation, Write
from tidelog.log.directory import LogDirectory
from tidelog.log.flush import FlushJob
from tidelog.log.format.names import folder_name
from tidelog.log.trust import LOSS_MARK, Kept, Life
from tidelog.replication.partition import Partition, Role

RunJobs = Callable[[list[FlushJob]], None]  # until all have ended; the first failure is raised


class Logs:
    def __init__(
        self,
        kernel: Kernel,
        image: Image,
        standing: Standing,
        disks: Disks,
        partitions: Partitions,
        checkpoints: Checkpoints,
        hosting: Hosting,
        statements: Statements,
        replicas: Replicas,
    ) -> None:
        self._kernel = kernel
        self._outbox = kernel.outbox
        self._image = image
        self._standing = standing
        self._disks = disks
        self._partitions = partitions
        self._checkpoints = checkpoints
        self._hosting = hosting
        self._statements = statements
        self._replicas = replicas
        self._was_clean = False

    @property
    def directories(self) -> list[LogDirectory]:
        return self._disks.directories

    def claim(self, cluster_id: str, life: Life) -> None:
        self._was_clean = self._disks.claim(cluster_id, life)

    def vouch(self, epoch: int) -> None:
        self._disks.vouch(epoch)

    def vouch_later(self, epoch: int, then: Callable[[], None]) -> None:
        self._disks.vouch_later(epoch, then)

    def open(self, own: BrokerEpoch) -> None:
        """Open every log that the image says is here; `own` is what the store knows of this broker."""
        partitions = self._partitions
        partitions.expect(own.notes, own.epoch, own.registered, self._kernel.is_sharing)
        self._hosting.open_known()
        self._checkpoints.forget(partitions.unknown_names())
        self._standing.are_logs_open = True
        self._outbox.tell(
            info(
                "logs opened",
                topics=len(self._image.topics),
                partitions=sum(1 for _ in partitions.all()),
                after_clean_stop=self._was_clean,
                scanned_bytes=partitions.scanned_size,
                cut_bytes=partitions.cut_size,
            )
        )
        lost = [each for each in partitions.all() if each.kept >= Kept.TORN]
        for partition in lost[:LOSSES_TOLD_MAX]:
            name = f"{partition.topic}-{partition.index}"
            self._outbox.tell(
                warning("replica distrusted", partition=name, found=partition.kept.name.lower())
            )
        if len(lost) > LOSSES_TOLD_MAX:
            self._outbox.tell(warning("replicas distrusted", partitions=len(lost)))

    def first_losses(self) -> list[Write]:
        """Some of what must be stated before this broker registers."""
        return self._statements.first()

    def led_alone(self) -> list[Operation]:
        """Partitions that have no other member and whose end this broker may have lost: it leads them under a
        new epoch."""
        node_id = self._kernel.node_id
        operations: list[Operation] = []
        for topic in self._image.topics.values():
            for index, facts in topic.partitions.items():
                here = self._partitions.find(topic.topic_id, index)
                if here is None or not here.is_open or self._image.is_trusted(facts, node_id):
                    continue
                led = recovered_alone(facts, node_id, self._standing.epoch)
                if led is not None and here.log.settings.recovers_alone:
                    operations.append(Write(topic.path(index), led.encode(), led.version))
        if operations:
            problem = "unflushed records may be lost"
            self._outbox.tell(
                warning("unclean recovery started", partitions=len(operations), problem=problem)
            )
        return operations

    def settle_losses(self) -> None:
        """The store knows what was lost, and the disk is told. Marks go last: a kill before that has the loss
        stated again."""
        marked = [each for each in self._partitions.all() if each.is_open and each.kept >= Kept.TORN]
        for directory in self.directories:
            here = [each for each in marked if each.directory is directory]
            try:
                self._settle(directory, here)
            except OSError as failure:
                if failure.errno not in FULL_DISK:
                    raise
                self._disks.fail(directory, failure)

    def _settle(self, directory: LogDirectory, marked: list[Partition]) -> None:
        if directory.failure is not None:
            if directory.kept is not Kept.LOST:  # what is lost stays so until it can be read
                directory.kept = Kept.WHOLE
            return
        was_whole, directory.kept = directory.kept is Kept.WHOLE, Kept.WHOLE
        directory.failed_before = ()
        directory.write_store_position(self._standing.store_position)
        if marked or not was_whole:  # from here on a log that ends below its checkpoint has lost more
            self._checkpoints.of(directory).run()
        directory.manifest.rewrite(
            (folder_name(each.topic, each.index), encode_id(each.topic_id))
            for each in self._partitions.in_directory(directory)
        )
        for partition in marked:
            partition.log.directory.remove(LOSS_MARK)
            partition.kept = Kept.WHOLE

    def use_broker_epoch(self) -> None:
        self._replicas.fetching.use_broker_epoch(self._standing.epoch)

    def serve(self) -> None:
        """This broker is registered: its partitions have the roles that the image says."""
        self._hosting.assign_all()
        self._replicas.note_brokers()

    def close(self, run_jobs: RunJobs) -> None:
        """Make everything durable and leave the sign of it."""
        for directory in self._disks.working:
            try:
                self._close(directory, run_jobs)
            except OSError as failure:
                self._disks.fail(directory, failure)

    def _close(self, directory: LogDirectory, run_jobs: RunJobs) -> None:
        here: list[Partition] = list(self._partitions.in_directory(directory))
        logs = [partition.log for partition in here if partition.role is not Role.OFFLINE]
        for start in range(0, len(logs), FLUSHES_MAX):
            closing = [(log, log.begin_close()) for log in logs[start : start + FLUSHES_MAX]]
            run_jobs([job for _, job in closing])
            for log, job in closing:
                log.end_close(job)
        self._checkpoints.of(directory).run()
        if directory.kept is Kept.WHOLE:  # else the store does not know yet what it has lost
            directory.mark_clean(self._standing.vouched_epoch)


def run_in_turn(jobs: list[FlushJob]) -> None:
    for job in jobs:
        job.run()
