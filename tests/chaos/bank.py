"""What must hold of a bank whose accounts are partitions, from the diaries of its tellers and what was read.

| committed readers have, of a transaction  | allowed                                    |
|-------------------------------------------|--------------------------------------------|
| whose commit was not asked for by then    | nothing                                    |
| that was told as aborted                  | nothing                                    |
| that was told as committed                | in the end all of it, each record once     |
| whose end was told to nobody              | in the end all of it, each record once, or |
|                                           | nothing                                    |
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tests.chaos.committed import Read
from tests.chaos.crew import Deal
from tests.chaos.transacting import ABORTED, COMMITTED


@dataclass
class Findings:
    missing_count: int = 0
    duplicated_count: int = 0
    wrong: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        return not (self.missing_count or self.duplicated_count or self.wrong)


def judge_bank(
    deals: Mapping[tuple[str, int], Deal], followed: Iterable[Read], found: Iterable[Read]
) -> Findings:
    findings, records, total = Findings(), defaultdict[tuple[str, int], list[tuple[int, int]]](list), 0
    there = {(read.partition, read.offset): read.value for read in found}
    for read in followed:
        if there.get(read[:2]) != read.value:
            findings.missing_count += 1
            findings.wrong.append(f"{read} was read, and {there.get(read[:2])!r} is there")
        asked_ns = deals[_key(read.value)].asked_ns
        if asked_ns is None or read.time_ns < asked_ns:
            findings.wrong.append(f"{read} was read before its commit was asked for, at {asked_ns}")
    for (partition, _), value in there.items():
        _, _, place, amount = value.split(b"|")
        records[_key(value)].append((int(place), partition))
        total += int(amount)
    for key, deal in deals.items():
        _judge(key, deal, records[key], findings)
    if total:
        findings.wrong.append(f"the accounts have {total} together")
    return findings


def _key(value: bytes) -> tuple[str, int]:
    name, number, _, _ = value.split(b"|")
    return name.decode(), int(number)


def _judge(key: tuple[str, int], deal: Deal, records: list[tuple[int, int]], findings: Findings) -> None:
    wanted = list(enumerate(deal.accounts))
    if not records:
        if deal.outcome == COMMITTED:
            findings.missing_count += len(wanted)
            findings.wrong.append(f"{key} was told as committed, and nothing of it is there")
        return
    if deal.outcome == ABORTED or deal.asked_ns is None:
        findings.wrong.append(f"{key} was not committed, and {records} is there")
    findings.duplicated_count += len(records) - len(set(records))
    if set(records) != set(wanted):
        findings.missing_count += len(set(wanted) - set(records))
        findings.wrong.append(f"{key} is torn: of {wanted} there is {sorted(records)}")
