"""Runs scripts about one group: a step a line, then `----`, then what came of it.

| step                             | is                                                                     |
|----------------------------------|------------------------------------------------------------------------|
| `topic t 3`, `grow t`, `delete t`| a topic is made, gets one more partition, goes                         |
| `consumer a topics=t owned=t-0`  | a ConsumerGroupHeartbeat; the first joins, later ones in the epoch told|
| `join a topics=t owned=t-0`      | a JoinGroup, with the member id that was told, if there is one         |
| `sync a a=t-0,t-1 b=t-2`         | a SyncGroup in the generation told, of a leader with everybody's part  |
| `heartbeat a`, `leave a`         | a Heartbeat and a LeaveGroup                                           |
| `commit a t-0=5`                 | an OffsetCommit in the epoch or generation told                        |
| `tick 3000`, `restart`           | time passes; the broker crashes and comes back                         |
| `group`                          | the state of the group                                                 |

`epoch=`, `instance=`, `session=`, `timeout=`, `pattern=`, `assignor=`, `protocol=` and `version=` say
otherwise than the usual. What came of it: `a <- ...` are answers, the other lines are records of the journal.

**Invariant:** a step's output is everything that was answered and written since the step before.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tests.log.making import read_bytes, split
from tests.scenarios.group_words import Words
from tests.sim.groups import Beat, Call, DirectLine, GroupNode, Leave, Request
from tests.sim.groups_classic import write_subscription
from tidelog.base.decision import Entry
from tidelog.cluster.features import GROUPS_TOPIC
from tidelog.groups.classic_member import Join, JoinAnswer, Leaving, Sync
from tidelog.groups.facts import read_entry
from tidelog.groups.heartbeat import Heartbeat, HeartbeatAnswer
from tidelog.groups.offsets import Commit, CommitAsk
from tidelog.protocol.embedded import write_assignment
from tidelog.protocol.errors import ErrorCode
from tidelog.protocol.records import read_records

GROUP = "g"
SEPARATOR = "----"
_SKIP_VERSION, _ID_VERSION = 9, 4


@dataclass
class Speaker:
    """A member as the script knows it."""

    name: str
    member_id: str = ""
    instance_id: str | None = None
    epoch: int | None = None
    protocol: str = "range"
    calls: list[Call] = field(default_factory=list)


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
        self._node = GroupNode(is_flushed=False)
        self._words = Words(self._node)
        self._line = DirectLine(self._node)
        self._speakers: dict[str, Speaker] = {}
        self._open: list[tuple[Speaker, Call]] = []
        self._read_offset = 0

    def step(self, line: str) -> list[str]:
        verb, *words = line.split()
        told = getattr(self, f"_do_{verb}")(*words)
        return [*(told or []), *self._answers(), *self._records()] or ["nothing"]

    # What has come of it.

    def _answers(self) -> list[str]:
        lines = []
        for speaker, call in self._open:
            for answer in call.answers:
                self._learn(speaker, answer)
        for speaker, call in self._open:
            lines += [f"{speaker.name} <- {self._words.answer(call, answer)}" for answer in call.answers]
        self._open = [(speaker, call) for speaker, call in self._open if not call.answers]
        return lines

    def _learn(self, speaker: Speaker, answer: object) -> None:
        if isinstance(answer, JoinAnswer) and answer.member_id:
            is_told = answer.error in (ErrorCode.none, ErrorCode.member_id_required)
            speaker.member_id = answer.member_id if is_told else speaker.member_id
            self._words.names[answer.member_id] = speaker.name
            if answer.error is ErrorCode.none:
                speaker.epoch = answer.generation
        elif isinstance(answer, HeartbeatAnswer) and answer.error is ErrorCode.none:
            speaker.epoch = answer.epoch

    def _records(self) -> list[str]:
        log = self._node.partition(topic=GROUPS_TOPIC).log
        lines = []
        while self._read_offset < log.end_offset:
            for header, batch in split(read_bytes(log, self._read_offset)):
                for record in read_records(batch):
                    fact = read_entry(Entry(record.key or b"", record.value))
                    assert fact is not None
                    lines.append(f"  {self._words.fact(fact)}")
                self._read_offset = header.last_offset + 1
        return lines

    # Steps about the world.

    def _do_topic(self, name: str, count: str) -> None:
        self._node.create_topic(name, int(count))

    def _do_grow(self, name: str) -> None:
        self._node.grow_topic(name)

    def _do_delete(self, name: str) -> None:
        self._node.delete_topic(name)

    def _do_tick(self, passed_ms: str) -> None:
        self._node.tick(int(passed_ms))
        while self._node.work():
            pass

    def _do_restart(self) -> None:
        self._node.stop()
        self._node.start()
        self._node.load()
        self._open.clear()

    def _do_group(self) -> list[str]:
        coordinator = self._node.coordinator(GROUP)
        group = coordinator.groups.get(GROUP) if coordinator is not None else None
        if group is None:
            return ["no group"]
        members = " ".join(self._words.name(member_id) for member_id in group.members)
        return [f"{type(group).__name__} {group.state.value}: {members or 'nobody'}"]

    # Steps of members.

    def _speaker(self, name: str, options: dict[str, str]) -> Speaker:
        speaker = self._speakers.setdefault(name, Speaker(name))
        speaker.instance_id = options.get("instance", speaker.instance_id)
        speaker.protocol = options.get("protocol", speaker.protocol)
        return speaker

    def _send(self, speaker: Speaker, request: Request) -> None:
        self._open.append((speaker, self._line.send(request)))

    def _do_consumer(self, name: str, *words: str) -> None:
        options = dict(word.split("=", 1) for word in words)
        speaker = self._speaker(name, options)
        speaker.member_id = name
        epoch = int(options.get("epoch", speaker.epoch or 0))
        owned = options.get("owned", "none" if epoch == 0 else None)
        self._send(
            speaker,
            Heartbeat(
                GROUP,
                name,
                epoch,
                speaker.instance_id,
                None,
                int(options.get("timeout", 30_000 if epoch == 0 else -1)),
                tuple(options["topics"].split(",")) if "topics" in options else None,
                options.get("pattern"),
                options.get("assignor"),
                self._by_id(owned) if owned is not None else None,
                name,
                "/127.0.0.1",
            ),
        )

    def _do_join(self, name: str, *words: str) -> None:
        options = dict(word.split("=", 1) for word in words)
        speaker = self._speaker(name, options)
        version = int(options.get("version", _SKIP_VERSION))
        topics = tuple(options.get("topics", "t").split(","))
        metadata = write_subscription(topics, by_name(options.get("owned", "none")))
        self._send(
            speaker,
            Join(
                GROUP,
                options.get("id", speaker.member_id),
                speaker.instance_id,
                name,
                "/127.0.0.1",
                int(options.get("session", 10_000)),
                int(options.get("timeout", 30_000)),
                "consumer",
                tuple((protocol, metadata) for protocol in speaker.protocol.split(",")),
                version >= _ID_VERSION,
                version >= _SKIP_VERSION,
            ),
        )

    def _do_sync(self, name: str, *words: str) -> None:
        speaker = self._speakers[name]
        options = dict(word.split("=", 1) for word in words)
        epoch = int(options.pop("epoch", speaker.epoch or 0))
        parts = {
            self._speakers[each].member_id: write_assignment(1, by_name(part))
            for each, part in options.items()
        }
        self._send(
            speaker, Sync(GROUP, speaker.member_id, speaker.instance_id, epoch, "consumer", None, parts)
        )

    def _do_heartbeat(self, name: str, *words: str) -> None:
        options = dict(word.split("=", 1) for word in words)
        speaker = self._speakers[name]
        epoch = int(options.get("epoch", speaker.epoch or 0))
        self._send(speaker, Beat(GROUP, speaker.member_id, speaker.instance_id, epoch))

    def _do_leave(self, name: str) -> None:
        speaker = self._speakers[name]
        self._send(speaker, Leave(GROUP, [Leaving(speaker.member_id, speaker.instance_id)]))

    def _do_commit(self, name: str, *words: str) -> None:
        options = dict(word.split("=", 1) for word in words)
        speaker = self._speakers[name]
        epoch = int(options.pop("epoch", speaker.epoch or 0))
        commits = []
        for spot, offset in options.items():
            topic, _, index = spot.rpartition("-")
            commits.append(
                Commit(topic, int(index), int(offset), -1, "", self._node.topic_id(topic) or bytes(16))
            )
        self._send(
            speaker, CommitAsk(GROUP, speaker.member_id, speaker.instance_id, epoch, -1, True, commits)
        )

    def _by_id(self, text: str) -> dict[bytes, tuple[int, ...]]:
        return {self._node.topic_id(name) or bytes(16): part for name, part in by_name(text).items()}


def by_name(text: str) -> dict[str, tuple[int, ...]]:
    """`t-0,t-1` by topic; `none` for no partitions."""
    found: dict[str, tuple[int, ...]] = {}
    for spot in text.split(",") if text != "none" else ():
        topic, _, index = spot.rpartition("-")
        found[topic] = (*found.get(topic, ()), int(index))
    return found
