"""What may be said of listeners, and what clients of each are told: addresses, by Kafka's rules."""

from __future__ import annotations

import socket

import pytest

from tidelog.base.config import BrokerSettings
from tidelog.base.setting import InvalidSetting
from tidelog.server.listeners import Listener, advertised_of, bind, listeners_of

INSIDE, OUTSIDE = "INTERNAL://127.0.0.1:9092", "EXTERNAL://127.0.0.1:9093"
TWO = {
    "listeners": f"{INSIDE},{OUTSIDE}",
    "listener.security.protocol.map": "INTERNAL:PLAINTEXT,EXTERNAL:PLAINTEXT,SECURE:SSL",
    "inter.broker.listener.name": "INTERNAL",
}


def settings_of(**more: str) -> BrokerSettings:
    """Two listeners, of which brokers use the first; an empty text takes a setting away."""
    said = TWO | {key.replace("_", "."): text for key, text in more.items()}
    return BrokerSettings({key: text for key, text in said.items() if text})


def told_by(settings: BrokerSettings) -> dict[str, tuple[str, int]]:
    """What is told when every listener has got a port of the system's choice."""
    sockets = [bind(Listener("127.0.0.1", 0), settings) for _ in listeners_of(settings)]
    try:
        return advertised_of(settings, listeners_of(settings), sockets)
    finally:
        for bound in sockets:
            bound.close()


def test_each_listener_has_a_name_a_host_and_a_port() -> None:
    assert listeners_of(settings_of()) == [
        Listener("127.0.0.1", 9092, "INTERNAL"),
        Listener("127.0.0.1", 9093, "EXTERNAL"),
    ]


def test_names_have_no_case() -> None:
    settings = settings_of(
        listeners="internal://127.0.0.1:9092,External://127.0.0.1:9093",
        listener_security_protocol_map="Internal:PLAINTEXT,external:PLAINTEXT",
        inter_broker_listener_name="internaL",
    )
    assert [listener.name for listener in listeners_of(settings)] == ["INTERNAL", "EXTERNAL"]
    assert settings.peer_listener == "INTERNAL"


def test_brokers_use_the_listener_called_plaintext_unless_told_otherwise() -> None:
    assert BrokerSettings({}).peer_listener == "PLAINTEXT"
    assert BrokerSettings({"security.inter.broker.protocol": "PLAINTEXT"}).peer_listener == "PLAINTEXT"
    assert settings_of().peer_listener == "INTERNAL"


def test_the_addresses_told_are_those_of_the_listeners_unless_others_are_advertised() -> None:
    assert told_by(settings_of()) == {"INTERNAL": ("127.0.0.1", 9092), "EXTERNAL": ("127.0.0.1", 9093)}
    advertised = "EXTERNAL://tide.example:443,INTERNAL://10.0.0.1:443"
    assert told_by(settings_of(advertised_listeners=advertised)) == {
        "EXTERNAL": ("tide.example", 443),
        "INTERNAL": ("10.0.0.1", 443),
    }


def test_a_listener_that_is_not_advertised_is_served_and_told_to_nobody() -> None:
    settings = settings_of(advertised_listeners="INTERNAL://10.0.0.1:9092")
    assert len(listeners_of(settings)) == 2
    assert told_by(settings) == {"INTERNAL": ("10.0.0.1", 9092)}


def test_what_is_left_open_is_filled_in() -> None:
    settings = BrokerSettings({"listeners": "PLAINTEXT://:0", "allow.insecure.listeners": "true"})
    ((host, port),) = told_by(settings).values()
    assert host == socket.gethostname()
    assert port > 0


def test_two_listeners_may_share_a_port_if_one_is_ipv4_and_the_other_ipv6() -> None:
    shared = settings_of(listeners="INTERNAL://127.0.0.1:9092,EXTERNAL://[::1]:9092")
    assert [str(listener) for listener in listeners_of(shared)] == [
        "INTERNAL://127.0.0.1:9092",
        "EXTERNAL://[::1]:9092",
    ]


def test_ports_that_the_system_chooses_are_no_shared_port() -> None:
    assert len(listeners_of(settings_of(listeners="INTERNAL://127.0.0.1:0,EXTERNAL://127.0.0.1:0"))) == 2


EVERYWHERE = {"listeners": "INTERNAL://0.0.0.0:9092,EXTERNAL://:9093", "allow_insecure_listeners": "true"}
REFUSED: list[tuple[dict[str, str], str]] = [
    ({"listeners": f"{INSIDE},INTERNAL://127.0.0.1:9093"}, "listeners=.*must be unique; INTERNAL is"),
    ({"listeners": f"{INSIDE},internal://127.0.0.1:9093"}, "listeners=.*must be unique; INTERNAL is"),
    ({"listeners": f"{INSIDE},EXTERNAL://127.0.0.1:9092"}, "listeners=.*a port of its own.*9092 is there 2"),
    ({"listeners": f"{INSIDE},EXTERNAL://localhost:9092"}, "listeners=.*a port of its own.*9092 is there 2"),
    ({"listeners": "INTERNAL://localhost:9092,EXTERNAL://[::1]:9092"}, "a port of its own"),
    ({"listeners": f"{INSIDE},OTHER://127.0.0.1:9094"}, "map has no protocol for OTHER; add OTHER:PLAINTEXT"),
    ({"listener_security_protocol_map": ""}, "map has no protocol for INTERNAL; add INTERNAL:PLAINTEXT"),
    (
        {"listeners": f"{INSIDE},SECURE://127.0.0.1:9094"},
        "listeners=SECURE://127.0.0.1:9094: SSL is not served yet; write PLAINTEXT://127.0.0.1:9094, ",
    ),
    ({"listeners": "://127.0.0.1:9092"}, "the listener has no name; write PLAINTEXT://host:port"),
    ({"listeners": "127.0.0.1:9092"}, "the listener has no name; write PLAINTEXT://host:port"),
    ({"listeners": "PLAINTEXT://127.0.0.1"}, "the address has no port; write PLAINTEXT://host:port"),
    ({"listeners": "PLAINTEXT://127.0.0.1:99999"}, "99999 is not a port; use 0 to 65535"),
    (
        {"advertised_listeners": "INTERNAL://a:1,SECURE://a:2"},
        "advertised.*SSL is not served yet; write PLAINTEXT://a:2",
    ),
    ({"advertised_listeners": "INTERNAL://a:1,OTHER://a:2"}, "advertised.*no protocol for OTHER"),
    ({"advertised_listeners": "INTERNAL://a:1,INTERNAL://a:2"}, "advertised.*INTERNAL is there twice"),
    (
        {"listeners": INSIDE, "advertised_listeners": "INTERNAL://a:1,EXTERNAL://a:2"},
        "advertised.listeners=EXTERNAL://a:2: listeners has no EXTERNAL; it has INTERNAL",
    ),
    ({"advertised_listeners": "INTERNAL://0.0.0.0:9092"}, "0.0.0.0 stands for all addresses of a machine"),
    ({"advertised_listeners": "INTERNAL://[::]:9092"}, ":: stands for all addresses of a machine"),
    (EVERYWHERE, "0.0.0.0 stands.*set advertised.listeners=INTERNAL://host:9092"),
    ({"inter_broker_listener_name": ""}, "name=PLAINTEXT: no listener of that name.*one of INTERNAL, EXT"),
    ({"inter_broker_listener_name": "OTHER"}, "inter.broker.listener.name=OTHER: no listener of that name"),
    ({"advertised_listeners": "EXTERNAL://a:1"}, "inter.broker.listener.name=INTERNAL: no listener of that"),
    ({"security_inter_broker_protocol": "PLAINTEXT"}, "inter.broker.* and security.inter.* are both set"),
    (
        {"security_inter_broker_protocol": "SSL", "inter_broker_listener_name": ""},
        "security.inter.broker.protocol=SSL: only PLAINTEXT is served",
    ),
    ({"security_inter_broker_protocol": "TLS"}, "security.inter.broker.protocol=TLS: expected one of PLAIN"),
    ({"listener_security_protocol_map": "INTERNAL"}, "protocol.map=INTERNAL: expected name:protocol"),
    ({"listener_security_protocol_map": "INTERNAL:TLS"}, "protocol.map=INTERNAL:TLS: expected name:protocol"),
    ({"listener_security_protocol_map": ":SSL"}, "protocol.map=:SSL: expected name:protocol"),
]


@pytest.mark.parametrize(("said", "line"), REFUSED, ids=range(len(REFUSED)))
def test_what_does_not_fit_together_is_refused_in_one_line(said: dict[str, str], line: str) -> None:
    with pytest.raises(InvalidSetting, match=line) as refused:
        listeners_of(settings_of(**said))
    assert "\n" not in str(refused.value)
