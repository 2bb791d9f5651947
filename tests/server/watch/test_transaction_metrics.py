"""Transactions on the metrics page: open, oldest, committed, aborted, and what a leader waits for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.server.watch.test_scrape import scrape, value, watching
from tests.wire.harness import FIND_COORDINATOR, INIT_PRODUCER_ID, PRODUCE, Harness, batch_of
from tests.wire.requests import produce_values
from tests.wire.transaction_requests import ADD_PARTITIONS, END, add_values, end_values, init_values
from tidelog.server.watch import transaction_metrics as room
from tidelog.server.watch.transaction_metrics import transaction_pieces
from tidelog.transactions.transaction import Identity


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    harness = Harness(
        tmp_path,
        transaction_state_log_num_partitions="1",
        transaction_max_timeout_ms="100000",
        log_flush_interval_messages="1",
    )
    harness.ask(FIND_COORDINATOR, 4, key_type=1, coordinator_keys=("a",))
    harness.create_topic("t")
    yield harness
    for partition in harness.broker.partitions.all():
        partition.log.close(clean=False)


def begin(harness: Harness, transactional_id: str) -> Identity:
    answer = harness.ask(INIT_PRODUCER_ID, 5, **init_values(transactional_id))
    producer = Identity(answer.producer_id, answer.producer_epoch)
    values = add_values(3, producer, {"t": [0]}, transactional_id=transactional_id)
    assert harness.ask(ADD_PARTITIONS, 3, **values).results_by_topic_v3_and_below[0].name == "t"
    return producer


def end(harness: Harness, transactional_id: str, producer: Identity, is_commit: bool) -> None:
    assert harness.ask(END, 4, **end_values(producer, is_commit, transactional_id)).error_code == 0


def produce(harness: Harness, transactional_id: str, producer: Identity) -> None:
    batch = batch_of(
        3,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=0,
        transactional=True,
    )
    harness.send(
        PRODUCE, 11, **produce_values(harness, 11, {"t": [(0, batch)]}, transactional_id=transactional_id)
    )


def numbers(harness: Harness) -> dict[str, float]:
    text = "".join(transaction_pieces(harness.broker, 2))
    return {
        sample.name.removeprefix("tidelog_transaction"): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels.get("partition", "0") == "0"
    }


def test_a_coordinator_tells_what_is_open_and_how_transactions_ended(harness: Harness) -> None:
    first = begin(harness, "a")
    harness.advance(2_000)
    others = {name: begin(harness, name) for name in ("b", "c", "d")}
    harness.advance(1_000)
    told = numbers(harness)
    assert (told["al_ids"], told["s_open"], told["s_oldest_seconds"]) == (4, 4, 3)
    end(harness, "a", first, True)
    end(harness, "b", others["b"], True)
    end(harness, "c", others["c"], False)
    told = numbers(harness)
    assert (told["s_open"], told["s_oldest_seconds"]) == (1, 1)
    assert (told["s_committed_total"], told["s_aborted_total"], told["s_ending"]) == (2, 1, 0)
    end(harness, "d", others["d"], True)
    told = numbers(harness)
    assert (told["s_open"], told["s_oldest_seconds"], told["s_committed_total"]) == (0, 0, 3)


def test_what_was_open_is_told_after_a_restart_and_what_ended_is_not_counted_again(harness: Harness) -> None:
    producer = begin(harness, "a")
    end(harness, "b", begin(harness, "b"), True)
    harness.start()
    harness.settle()
    told = numbers(harness)
    assert (told["al_ids"], told["s_open"], told["s_committed_total"]) == (2, 1, 0)
    end(harness, "a", producer, False)
    assert numbers(harness)["s_aborted_total"] == 1


def test_ends_and_batches_that_wait_are_told(harness: Harness) -> None:
    producer = begin(harness, "a")
    harness.holds_flushes = True
    produce(harness, "a", producer)  # its verification waits for what is not on disk
    harness.send(INIT_PRODUCER_ID, 5, **init_values("b"))
    harness.send(END, 4, **end_values(producer, True, "a"))
    harness.release_flushes()
    harness.answers()
    assert (numbers(harness)["s_ending"], numbers(harness)["_bytes_held"]) == (0, 0)
    second = begin(harness, "c")
    harness.holds_flushes = True
    harness.send(INIT_PRODUCER_ID, 5, **init_values("b"))
    produce(harness, "c", second)
    assert numbers(harness)["_bytes_held"] > 0
    harness.release_flushes()
    assert numbers(harness)["_bytes_held"] == 0


def test_a_leader_tells_how_far_readers_are_held_back(harness: Harness) -> None:
    watched = watching(harness.broker)
    lag, late = "kafka_cluster_partition_laststableoffsetlag", "partitionswithlatetransactionscount"
    producer = begin(harness, "a")
    produce(harness, "a", producer)
    harness.answers()
    metrics = scrape(watched)
    assert value(metrics, lag, topic="t", partition="0") == 3
    assert value(metrics, f"kafka_server_replicamanager_{late}") == 0
    clock = harness.broker.clock
    clock.set(clock.now_ms + 400_003, clock.uptime_ms)  # nobody ends it
    assert value(scrape(watched), f"kafka_server_replicamanager_{late}") == 1
    end(harness, "a", producer, True)
    assert value(scrape(watched), lag, topic="t", partition="0") == 0


def test_the_page_is_made_a_piece_at_a_time(harness: Harness) -> None:
    for number in range(9):
        begin(harness, f"id-{number}")
    pieces = list(transaction_pieces(harness.broker, 2))
    assert pieces.count("") == 4, "after every other transaction that was looked at"
    assert room.OLDEST.name in "".join(pieces)
