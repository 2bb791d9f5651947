"""The Java clients over a broker's life: changes that stand, a broker that goes and comes back, metrics."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.compat.client import eventually
from tests.compat.contract import PLAIN
from tests.compat.java.driver import Java
from tests.compat.java.jvm import Jvm
from tests.compat.java.operator import JavaOperator
from tests.compat.lasting import Lasting, OperatorAt
from tidelog.testing import Broker
from tidelog.testing.process import BrokerProcess

SENT = "kafka_client_producer_record_send_total"
CONSUMED = "kafka_client_consumer_fetch_manager_records_consumed_total"


class TestJavaLasting(Lasting):
    @pytest.fixture
    def operator_at(self, jvm: Jvm) -> OperatorAt:
        return partial(JavaOperator, jvm=jvm)


@pytest.mark.parametrize(
    ("end", "group_protocol"), [(BrokerProcess.stop, "classic"), (BrokerProcess.kill, "consumer")]
)
def test_clients_go_on_when_the_broker_comes_back(
    jvm: Jvm, tmp_path: Path, end: Callable[[BrokerProcess], object], group_protocol: str
) -> None:
    """Records sent while it is gone arrive once, in order, by an idempotent producer that waits."""
    with BrokerProcess(tmp_path) as broker, ThreadPoolExecutor(1) as pool:
        java = Java(broker.bootstrap_servers, jvm, {"group.protocol": group_protocol})
        java.create_topic("t", 1, {})
        with java.producer() as producer, java.consumer("t") as consumer:
            producer.send("t", PLAIN)
            before = consumer.poll(len(PLAIN))
            end(broker)
            sending = pool.submit(producer.send, "t", PLAIN)
            broker.start()
            acknowledged = sending.result()
            after = consumer.poll(len(PLAIN))
        assert [each.offset for each in acknowledged] == list(range(20, 40))
        assert [record.offset for record in before + after] == list(range(40))
        assert [record.value for record in after] == [sent.value for sent in PLAIN]


def test_the_metrics_that_clients_push_are_shown(jvm: Jvm) -> None:
    """Java clients ask what is wanted and push it, unless told otherwise (KIP-714)."""
    with Broker(probe_listener="127.0.0.1:0") as broker:
        operator = JavaOperator(broker.bootstrap_servers, jvm)
        operator.create_topic("t", 1, {})
        operator.alter("CLIENT_METRICS", "all", ("SET", "interval.ms", "200"), ("SET", "metrics", "*"))

        def counted(metric: str, instance_id: str) -> bool:
            with urlopen(f"http://{broker.probe_address}/metrics") as page:
                lines = page.read().decode().splitlines()
            ours = [line for line in lines if line.startswith(f"{metric}{{") and instance_id in line]
            return any(line.endswith(f" {len(PLAIN)}.0") for line in ours)

        with operator.producer() as producer, operator.consumer("t") as consumer:
            producer.send("t", PLAIN)
            assert len(consumer.poll(len(PLAIN))) == len(PLAIN)
            first, second = producer.instance_id(), consumer.call("instance")
            assert first != second
            eventually(lambda: counted(SENT, first), "what the producer counts is not shown")

            def counted_while_it_polls() -> bool:
                """This consumer speaks only when it is asked to."""
                return not consumer.poll(1, wait_ms=100) and counted(CONSUMED, second)

            eventually(counted_while_it_polls, "what the consumer counts is not shown")
