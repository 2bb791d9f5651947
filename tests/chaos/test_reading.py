"""The checker itself: each thing that can be wrong with a partition is seen."""

from __future__ import annotations

from tests.chaos.reading import Findings, PartitionCheck
from tests.chaos.workload import Ledger, content


def check(values: dict[int, bytes], acknowledged: dict[int, int], is_idempotent: bool = True) -> Findings:
    findings = Findings()
    ledger = Ledger(is_idempotent, [acknowledged], [len(acknowledged)])
    checked = PartitionCheck(0, {"w": ledger}, findings)
    for offset, value in values.items():
        checked.add(offset, value)
    checked.end()
    return findings


def test_a_record_that_was_acknowledged_without_its_place_must_be_somewhere() -> None:
    for values, missing in ((records(0, 1), 0), (records(0), 1)):
        findings = Findings()
        checked = PartitionCheck(0, {"w": Ledger(True, [{0: 0}], [2], unplaced={(0, 1), (1, 7)})}, findings)
        for offset, value in values.items():
            checked.add(offset, value)
        checked.end()
        assert (findings.missing_count, len(findings.wrong)) == (missing, missing)


def records(*numbers: int) -> dict[int, bytes]:
    return {offset: content("w", 0, number) for offset, number in enumerate(numbers)}


def test_a_whole_partition_is_clean() -> None:
    assert check(records(0, 1, 2), {0: 0, 1: 1, 2: 2}).is_clean


def test_a_record_that_was_never_acknowledged_may_be_there() -> None:
    assert check(records(0, 1, 2), {0: 0, 1: 1}).is_clean


def test_a_lost_tail_is_missing() -> None:
    assert check(records(0, 1), {0: 0, 1: 1, 2: 2}).missing_count == 1


def test_a_gap_in_the_offsets_is_seen() -> None:
    assert check({0: content("w", 0, 0), 2: content("w", 0, 1)}, {}).wrong


def test_a_record_of_an_idempotent_writer_that_comes_twice_is_a_duplicate() -> None:
    assert check(records(0, 1, 1, 2), {0: 0, 1: 1, 3: 2}).duplicated_count == 1


def test_a_record_of_a_plain_writer_may_come_twice() -> None:
    assert check(records(0, 1, 1, 2), {0: 0, 2: 1, 3: 2}, is_idempotent=False).is_clean


def test_a_record_that_overtakes_another_is_seen() -> None:
    assert check(records(0, 2, 1), {}, is_idempotent=False).wrong


def test_a_record_whose_offset_now_holds_another_is_missing() -> None:
    assert check(records(0, 1, 2), {0: 0, 1: 2}).missing_count == 1


def test_a_changed_byte_is_seen() -> None:
    values = records(0, 1, 2)
    values[2] = values[2][:-1] + b"y"
    assert check(values, {}).wrong


def test_a_record_of_another_partition_is_seen() -> None:
    assert check({0: content("w", 1, 0)}, {}).wrong
