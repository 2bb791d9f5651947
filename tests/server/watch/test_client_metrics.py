"""Pushed metrics on the page: names that dashboards can guess, and text that no name can break."""

from __future__ import annotations

from tidelog.broker.telemetry import ClientMetric
from tidelog.server.watch.client_metrics import client_pieces, family_name, series_labels

LABELS = 'client_instance_id="id",client_id="c",client_software_name="soft",client_software_version="1"'


def row(name: str, value: float = 1, *, is_counter: bool = False, **labels: str) -> ClientMetric:
    return ClientMetric("id", "c", "soft", "1", name, tuple(labels.items()), value, is_counter, 0)


def test_a_metric_is_shown_under_its_own_name_with_whose_it_is() -> None:
    rows = [
        row("org.apache.kafka.producer.node.request.latency.avg", 1.5, node="1"),
        row("org.apache.kafka.producer.connection.creation.total", 3, is_counter=True),
        row("org.apache.kafka.producer.node.request.latency.avg", 2.5, node="2"),
    ]
    created, latency = (
        "kafka_client_producer_connection_creation_total",
        "kafka_client_producer_node_request_latency_avg",
    )
    assert "".join(client_pieces(rows, 250)) == (
        f"# HELP {created} Pushed by clients.\n# TYPE {created} counter\n"
        f"{created}{{{LABELS}}} 3\n"
        f"# HELP {latency} Pushed by clients.\n# TYPE {latency} gauge\n"
        f'{latency}{{{LABELS},node="1"}} 1.5\n'
        f'{latency}{{{LABELS},node="2"}} 2.5\n'
    )


def test_names_and_labels_are_made_legal() -> None:
    assert family_name("com.example-x/é.rate") == "kafka_client_com_example_x___rate"
    assert family_name("org.apache.kafka.1") == "kafka_client_1"
    labels = {"node.id": "1", "__name__": "n", "9": "nine", "": "none", "é": "lost", "quoted": 'a"\n\\'}
    odd = row("m")._replace(labels=tuple(labels.items()))
    assert series_labels(odd) == (
        f'{{{LABELS},node_id="1",name__="n",label_9="nine",label="none",quoted="a\\"\\n\\\\"}}'
    ), "of two labels that become the same the first is kept"


def test_a_client_cannot_speak_in_another_s_name() -> None:
    assert series_labels(row("m", client_id="somebody", client_instance_id="other")) == f"{{{LABELS}}}"


def test_a_series_is_shown_once_and_clients_may_disagree_about_its_kind() -> None:
    text = "".join(client_pieces([row("a.b", 1), row("a_b", 2, is_counter=True)], 250))
    assert text.splitlines()[1:] == [
        "# TYPE kafka_client_a_b untyped",
        f"kafka_client_a_b{{{LABELS}}} 2",
    ]


def test_pieces_have_a_bounded_number_of_series() -> None:
    pieces = list(client_pieces([row("m", node=str(number)) for number in range(25)], 10))
    assert [piece.count("\n") for piece in pieces] == [0, 0, 0, 2, 10, 10, 5]


def test_without_clients_there_is_nothing_to_show() -> None:
    assert list(client_pieces([], 10)) == []
