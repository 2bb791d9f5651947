"""Runs a script about a cluster whose brokers die and come back: one step, then what came of it.

| step                        | meaning                                                                    |
|-----------------------------|----------------------------------------------------------------------------|
| `cluster 3`                 | brokers 1, 2 and 3, and the topic t with one partition on all of them      |
| `produce 1 4 acks=all`      | a batch of four records to broker 1                                        |
| `flush 1`                   | broker 1 fsyncs what it has, and its checkpoints are written               |
| `pause 2`, `resume 2`       | broker 2 does nothing for a while; the machine runs on                     |
| `power-cut 1 torn=20`       | machine 1 is gone; the last 20 bytes of its log never got to the disk      |
| `start 1`                   | it comes back                                                              |
| `sessions-end 2`            | the store was away for too long for all; only broker 2 finds it again      |
| `find-store 1 3`            | and now brokers 1 and 3                                                    |
| `tick 500`                  | time passes                                                                |
| `look`                      | the partition: in the store, and each replica's batches (offsets@epoch)    |
| `compare`                   | the files of all replicas                                                  |

What comes of a step: fetches between brokers that say something new, what brokers tell their operator, and
answers to the client, in the order in which they came.

**Invariant:** a step's output is everything of that kind that happened since the step before.
"""

from __future__ import annotations

from pathlib import Path

from tests.log.making import make_batch, split, stored
from tests.scenarios.recovery_cluster import Machine, RecoveryCluster
from tests.scenarios.recovery_words import batches
from tidelog.client.produce import decode_produce_response, encode_produce_request
from tidelog.cluster.store import Done, Outcome
from tidelog.log.format.names import LOG_SUFFIX, file_name
from tidelog.protocol.errors import ErrorCode

SEPARATOR = "----"
PRODUCE_VERSION = 9
_ANSWER_BODY = 4 + 4 + 1


def run(path: Path) -> str:
    """The script with the output that it has now."""
    script = Script()
    out = []
    for block in path.read_text("utf-8").strip().split("\n\n"):
        step, separator, _ = block.partition(f"\n{SEPARATOR}")
        if not separator:
            out.append(block)
            continue
        comments = [line for line in step.splitlines() if line.startswith("#")]
        (line,) = [line for line in step.splitlines() if not line.startswith("#")]
        out.append("\n".join([*comments, line, SEPARATOR, *script.step(line)]))
    return "\n\n".join(out) + "\n"


class Script:
    def __init__(self) -> None:
        self._cluster = RecoveryCluster(0)
        self._number = 0

    def step(self, line: str) -> list[str]:
        verb, *words = line.split()
        told = getattr(self, f"_do_{verb.replace('-', '_')}")(*words) or []
        self._cluster.run()
        said, self._cluster.said = self._cluster.said, []
        return [*told, *said, *self._answers()] or ["nothing"]

    def _answers(self) -> list[str]:
        lines = []
        for frame in self._cluster.answers:
            ((_, (partition,)),) = decode_produce_response(
                memoryview(frame), _ANSWER_BODY, PRODUCE_VERSION
            ).topics
            code = partition.error_code
            told = ErrorCode(code).name if code else f"acknowledged from {partition.base_offset} on"
            lines.append(f"produce {int.from_bytes(frame[4:8], 'big')}: {told}")
        self._cluster.answers.clear()
        return lines

    # Steps.

    def _do_cluster(self, size: str) -> list[str]:
        cluster = self._cluster = RecoveryCluster(int(size))
        for node_id in cluster.machines:
            cluster.start(node_id)
            cluster.run()
        outcomes: list[Outcome] = []
        controller = next(each.broker for each in cluster.machines.values() if each.broker is not None)
        controller.topics.create("t", {}, [list(cluster.machines)], outcomes.append)
        cluster.tick(1_000)
        assert outcomes == [Done()]
        cluster.said.clear()
        return self._do_look()

    def _do_produce(self, node_id: str, count: str, acks: str) -> None:
        self._number += 1
        word = acks.removeprefix("acks=")
        level = -1 if word == "all" else int(word)
        pieces = encode_produce_request(
            PRODUCE_VERSION, self._number, "c", level, 5_000, [("t", [(0, make_batch(int(count)))])]
        )
        self._cluster.send(int(node_id), b"".join(bytes(piece) for piece in pieces)[4:])

    def _do_flush(self, node_id: str) -> None:
        machine = self._cluster.machines[int(node_id)]
        partition = machine.partition()
        assert machine.broker is not None and partition is not None
        partition.want_flush()
        machine.broker.flushing.maybe_begin(partition)
        self._cluster.tick(1_000)

    def _do_pause(self, *node_ids: str) -> None:
        for node_id in node_ids:
            self._cluster.machines[int(node_id)].is_paused = True

    def _do_resume(self, *node_ids: str) -> None:
        for node_id in node_ids:
            self._cluster.resume(int(node_id))

    def _do_power_cut(self, node_id: str, torn: str = "torn=0") -> None:
        self._cluster.lose_power(int(node_id))
        size = int(torn.removeprefix("torn="))
        folder = self._cluster.machines[int(node_id)].folder.folder("t-0")
        name = file_name(0, LOG_SUFFIX)
        content = folder.read_whole(name) or b""
        folder.replace_whole(name, content[: len(content) - size] + bytes(size))

    def _do_start(self, node_id: str) -> None:
        self._cluster.start(int(node_id))

    def _do_sessions_end(self, *node_ids: str) -> None:
        self._cluster.end_sessions()
        self._do_find_store(*node_ids)

    def _do_find_store(self, *node_ids: str) -> None:
        for node_id in node_ids:
            self._cluster.find_store(int(node_id))

    def _do_tick(self, passed_ms: str) -> None:
        self._cluster.tick(int(passed_ms))

    def _do_look(self) -> list[str]:
        machines = self._cluster.machines.values()
        broker = next(each.broker for each in machines if each.broker is not None and not each.is_paused)
        facts = broker.image.topics["t"].partitions[0]
        isr = " ".join(map(str, facts.in_sync_replicas))
        eligible = f", eligible {' '.join(map(str, facts.eligible))}" if facts.eligible else ""
        lines = [f"store: led by {facts.leader} in epoch {facts.leader_epoch}, in sync {isr}{eligible}"]
        lines += [self._replica(machine) for machine in machines]
        return lines

    def _replica(self, machine: Machine) -> str:
        partition = machine.partition()
        if partition is None:
            return f"{machine.node_id}: down"
        folder = machine.folder.folder("t-0")
        log = partition.log
        found = batches([header for header, _ in stored(folder, log)]) or "nothing"
        return (
            f"{machine.node_id}: {partition.role.value} in epoch {partition.leader_epoch}, has {found}, "
            f"knows {partition.high_watermark} to be committed, flushed to {log.recovery_point}"
        )

    def _do_compare(self) -> list[str]:
        contents = [
            machine.folder.folder("t-0").read_whole(file_name(0, LOG_SUFFIX)) or b""
            for machine in self._cluster.machines.values()
        ]
        found = batches([header for header, _ in split(contents[0])])
        return [f"{'the same bytes on all' if len(set(contents)) == 1 else 'NOT the same bytes'}: {found}"]
