"""A broker inside your test: `with Broker() as broker: ... broker.bootstrap_servers`."""

from tidelog.testing.broker import Broker

__all__ = ["Broker"]
