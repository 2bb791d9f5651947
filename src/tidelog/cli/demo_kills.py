"""`tidelog demo kills`: kills a broker repeatedly under load, and counts lost records.

An idempotent producer with acks=all sends a stream of numbered records; the broker is killed with SIGKILL
and started again on the same directory. Then everything is read back and compared with the
acknowledgements.
"""

from __future__ import annotations

import tempfile
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from tidelog.cli.addresses import ANSWER_TIMEOUT_S
from tidelog.cli.failure import Failure
from tidelog.cli.options import TableFormat, TableOrJson
from tidelog.cli.screen import console, print_json, print_table
from tidelog.testing.process import BrokerDidNotStart, BrokerProcess

TOPIC = "demo"
PARTITIONS = 3
RECORD_SIZE = 100
SEND_SLICE = 2_000  # records between two updates of the progress
SILENCE_S_MAX = 30.0  # silence of the broker after which the demo fails


def kills(
    records: Annotated[int, typer.Option(min=1_000, help="Records to send.")] = 600_000,
    kill_count: Annotated[int, typer.Option("--kills", min=0, help="How often the broker is killed.")] = 3,
    format: TableOrJson = TableFormat.TABLE,
) -> int:
    """Kill a broker under load and show that no acknowledged record is missing."""
    is_quiet = format is TableFormat.JSON
    with tempfile.TemporaryDirectory(prefix="tidelog-demo-") as directory, _progress(is_quiet) as progress:
        say = progress.console.print
        settings = {"log.segment.bytes": str(8 * 1024 * 1024)}
        try:
            with BrokerProcess(directory, settings) as broker:
                say(f"broker started in {broker.start_seconds:.2f} s at {broker.bootstrap_servers}")
                ledger = _produce(broker, progress, records, kill_count)
                tally = _read_back(broker, progress, ledger)
        except BrokerDidNotStart as error:
            raise Failure(f"the broker did not start: {error}") from None
    facts = ledger.facts(tally)
    if format is TableFormat.JSON:
        print_json(facts)
    else:
        _print_facts(facts)
    return 0 if tally.missing_count == 0 and tally.duplicated_count == 0 else 1


class Ledger:
    """The acknowledged records, with partition and offset."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.partition_of = array("h", [-1]) * count
        self.offset_of = array("q", [-1]) * count
        self.acknowledged_count = 0
        self.failure: KafkaError | None = None
        self.restart_seconds: list[float] = []
        self.seconds = 0.0

    def on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failure = error
            return
        number = _number_in(message)
        self.partition_of[number] = message.partition() or 0
        self.offset_of[number] = message.offset() or 0
        self.acknowledged_count += 1

    def facts(self, tally: Tally) -> dict[str, int | float]:
        return {
            "records_acknowledged": self.acknowledged_count,
            "kills": len(self.restart_seconds),
            "slowest_restart_seconds": round(max(self.restart_seconds, default=0.0), 3),
            "acknowledged_but_missing": tally.missing_count,
            "duplicated": tally.duplicated_count,
            "records_per_second": round(self.acknowledged_count / self.seconds),
        }


def _print_facts(facts: dict[str, int | float]) -> None:
    rows = [
        ("records acknowledged", f"{facts['records_acknowledged']:,}"),
        ("kills (SIGKILL)", str(facts["kills"])),
        ("slowest restart", f"{facts['slowest_restart_seconds']:.2f} s" if facts["kills"] else "none"),
        ("acknowledged but missing", f"{facts['acknowledged_but_missing']:,}"),
        ("duplicated", f"{facts['duplicated']:,}"),
        ("throughput, kills included", f"{facts['records_per_second']:,} records/s"),
    ]
    print_table(("", ""), rows)
    is_well = facts["acknowledged_but_missing"] == 0
    verdict = "nothing acknowledged is missing" if is_well else "RECORDS WERE LOST"
    console().print(f"[bold]{verdict}[/bold]")


class Tally:
    """The records read back, compared with the ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._seen = bytearray(ledger.count)
        self.read_count = 0
        self.duplicated_count = 0
        self._found_count = 0

    @property
    def missing_count(self) -> int:
        return self._ledger.acknowledged_count - self._found_count

    def add(self, message: Message) -> None:
        """Count a record; it is found only at the acknowledged partition and offset."""
        self.read_count += 1
        number = _number_in(message)
        if self._seen[number]:
            self.duplicated_count += 1
            return
        self._seen[number] = 1
        place = (self._ledger.partition_of[number], self._ledger.offset_of[number])
        if place == (message.partition(), message.offset()):
            self._found_count += 1


def _produce(broker: BrokerProcess, progress: Progress, count: int, kills: int) -> Ledger:
    ledger = Ledger(count)
    stretch = count // (kills + 1)
    kill_at = [stretch * place for place in range(1, kills + 1)]
    producer = _open_producer(broker)
    task = progress.add_task("produce", total=count)
    started = last_change = time.monotonic()
    sent = acknowledged = 0
    while ledger.acknowledged_count < count:
        # Not so far ahead that a kill would find no records left to send.
        end = kill_at[0] + stretch // 2 if kill_at else count
        sent = _send_slice(producer, ledger, sent, end)
        producer.poll(0.05 if sent == end else 0)
        if ledger.acknowledged_count != acknowledged:
            acknowledged, last_change = ledger.acknowledged_count, time.monotonic()
            progress.update(task, completed=acknowledged)
        if kill_at and acknowledged >= kill_at[0]:
            kill_at.pop(0)
            ledger.restart_seconds.append(_kill_and_restart(broker, progress, acknowledged))
        if ledger.failure is not None or time.monotonic() - last_change > SILENCE_S_MAX:
            raise Failure(f"the producer failed: {ledger.failure or 'no acknowledgement for a long time'}")
    ledger.seconds = time.monotonic() - started
    return ledger


def _send_slice(producer: Producer, ledger: Ledger, sent: int, end: int) -> int:
    """Queue the next records, as many as fit; the number of the next one to send."""
    slice_end = min(sent + SEND_SLICE, end)
    for number in range(sent, slice_end):
        try:
            producer.produce(TOPIC, f"{number:0{RECORD_SIZE}d}", on_delivery=ledger.on_delivery)
        except BufferError:
            producer.poll(0.05)
            return number
    return max(sent, slice_end)


def _kill_and_restart(broker: BrokerProcess, progress: Progress, acknowledged: int) -> float:
    started = time.monotonic()
    broker.kill()
    broker.start()
    seconds = time.monotonic() - started
    progress.console.print(
        f"killed after {acknowledged:,} acknowledged records; serving again after {seconds:.2f} s"
    )
    return seconds


def _open_producer(broker: BrokerProcess) -> Producer:
    settings: dict[str, Any] = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}
    admin = AdminClient(settings)
    made = admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)], request_timeout=ANSWER_TIMEOUT_S)
    made[TOPIC].result()
    quick = {
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 500,
        "retry.backoff.ms": 50,
        "linger.ms": 5,
    }
    return Producer(settings | quick | {"acks": "all", "enable.idempotence": True})


def _read_back(broker: BrokerProcess, progress: Progress, ledger: Ledger) -> Tally:
    """Read the topic to the ends that it had at the beginning of reading."""
    tally = Tally(ledger)
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": TOPIC,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    ends = {}
    for number in range(PARTITIONS):
        low, ends[number] = consumer.get_watermark_offsets(
            TopicPartition(TOPIC, number), timeout=ANSWER_TIMEOUT_S
        )
        assert low == 0, "nothing was deleted"
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in ends])
    task: TaskID = progress.add_task("read back", total=sum(ends.values()))
    last_change = time.monotonic()
    while tally.read_count < sum(ends.values()) and time.monotonic() - last_change < SILENCE_S_MAX:
        for message in consumer.consume(SEND_SLICE, 0.2):
            if message.error() is None:
                tally.add(message)
                last_change = time.monotonic()
        progress.update(task, completed=tally.read_count)
    consumer.close()
    return tally


def _number_in(message: Message) -> int:
    return int(message.value() or b"-1")


@contextmanager
def _progress(is_quiet: bool) -> Iterator[Progress]:
    """A progress bar on a terminal; otherwise only the lines, or with `is_quiet` nothing."""
    out = console()
    out.quiet = is_quiet
    columns = (TextColumn("{task.description:<9}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=out, disable=not out.is_terminal) as progress:
        yield progress
