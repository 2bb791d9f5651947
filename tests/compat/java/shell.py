"""Kafka's command line tools against one broker, run as a shell would.

**Invariant:** a tool that says it did well and printed a stack trace did not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from tests.compat.java.jvm import Jvm, Ran

PACKAGE = "org.apache.kafka.tools"
TOPICS = f"{PACKAGE}.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
GROUPS = f"{PACKAGE}.consumer.group.ConsumerGroupCommand"
STACK_TRACE = re.compile(r"^\s+at [\w.$]+\(", re.MULTILINE)


class Shell:
    """Runs tools against one broker."""

    def __init__(self, jvm: Jvm, bootstrap: str) -> None:
        self._jvm = jvm
        self.bootstrap = bootstrap

    def run(self, main: str, *arguments: str, text: str = "") -> list[str]:
        """What the tool printed; it ends with 0 and without a stack trace."""
        ran = self._run(main, arguments, text)
        assert ran.status == 0, ran
        assert not STACK_TRACE.search(ran.output + ran.errors), ran
        return ran.output.splitlines()

    def fail(self, main: str, *arguments: str) -> str:
        """All that the tool said; it does not end with 0."""
        ran = self._run(main, arguments, "")
        assert ran.status == 1, ran
        return ran.output + ran.errors

    def _run(self, main: str, arguments: tuple[str, ...], text: str) -> Ran:
        where = ("--bootstrap-server", self.bootstrap)
        verb = (
            (arguments[0], *where, *arguments[1:]) if main.endswith("ClusterTool") else (*where, *arguments)
        )
        return self._jvm.tool(main, *verb, text=text)

    @contextmanager
    def configured(self, kind: str, *entity: str, add: str) -> Iterator[None]:
        """Settings for one block."""
        self.run(CONFIGS, "--alter", "--entity-type", kind, *entity, "--add-config", add)
        try:
            yield
        finally:
            keys = ",".join(re.findall(r"(?:^|,)([\w.-]+)=", re.sub(r"\[.*?\]", "", add)))
            self.run(CONFIGS, "--alter", "--entity-type", kind, *entity, "--delete-config", keys)

    def configs(self, kind: str, *entity: str) -> str:
        return "\n".join(self.run(CONFIGS, "--describe", "--entity-type", kind, *entity))


def table(lines: list[str]) -> list[dict[str, str]]:
    """Rows of a printed table, by the words at its head; a row may end early."""
    filled = [line.split() for line in lines if line.strip()]
    heads = next(index for index, words in enumerate(filled) if words[0] in ("GROUP", "TOPIC"))
    return [dict(zip(filled[heads], words, strict=False)) for words in filled[heads + 1 :]]
