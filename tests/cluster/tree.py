"""A tree of nodes kept by hand, and the image that follows it."""

from __future__ import annotations

from tidelog.cluster.controller import decide_fence, decide_first_start, decide_registration
from tidelog.cluster.facts import BrokerFacts
from tidelog.cluster.image import Image
from tidelog.cluster.store import Create, Delete, Node, Operation, Write

ID = bytes(range(16))


class Tree:
    """A store of one request after the other, and the image that followed it."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.image = Image()

    def apply(self, operations: list[Operation]) -> None:
        for operation in operations:
            if isinstance(operation, Create):
                assert operation.path not in self.nodes
                self.nodes[operation.path] = Node(operation.data, 0)
            elif isinstance(operation, Write):
                old = self.nodes[operation.path]
                assert operation.version in (-1, old.version)
                self.nodes[operation.path] = Node(operation.data, old.version + 1)
            elif isinstance(operation, Delete):
                del self.nodes[operation.path]
        self.image.apply(operations)

    def loaded(self) -> Image:
        image = Image()
        image.take(self.nodes, self.nodes)
        return image


def started() -> Tree:
    tree = Tree()
    tree.apply(decide_first_start(tree.image, ID))
    register(tree, BrokerFacts(1, "host", 9092, "rack", 0))
    return tree


def register(tree: Tree, broker: BrokerFacts, is_trusted: bool = True) -> None:
    """As a process that has just begun does."""
    tree.apply(decide_fence(tree.image, broker.node_id))
    broker.epoch = tree.image.broker_epochs[broker.node_id].epoch
    tree.apply(decide_registration(tree.image, broker, is_trusted, {"d": 1}))
