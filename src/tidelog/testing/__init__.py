"""A broker, or a cluster, inside your test: `with Broker() as broker: ... broker.bootstrap_servers`."""

from tidelog.testing.broker import Broker
from tidelog.testing.cluster import Cluster

__all__ = ["Broker", "Cluster"]
