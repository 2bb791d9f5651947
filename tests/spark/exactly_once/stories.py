"""Stories of one sink: what must be in its topic, whatever was killed, repeated or copied.

Each is told by `test_decider` as it should be, and by `test_decider_mutants` with a bug in the package,
which it must notice.

**Invariant:** a story fails by an assertion of its own.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random

from tests.soak import choose_seed, is_soak
from tests.spark.exactly_once.world import (
    TIMEOUT_MS,
    Driver,
    Held,
    Killed,
    Query,
    World,
    killed,
    killed_at,
    world,
)
from tidelog.client.cluster import Cluster, TopicPartition
from tidelog.client.errors import ClientError, ConnectionLost, GaveUp
from tidelog.client.transaction_messages import CommittedOffset
from tidelog.spark.exactly_once.stops import SinkStopped, Stop
from tidelog.spark.exactly_once.tasks import Slots, TaskReport

KILLS_APART = 6  # steps between two kills of a sample
FOUND = 3  # how a process ends that has found something wrong
Story = Callable[[World], None]
STORIES: dict[str, Story] = {}

FIRST = [["a:1", "b:1"], ["c:1", "d:1"]]
AGAIN = [["c:2"], ["a:2", "d:2", "b:2"], []]  # the same keys, computed and divided otherwise
NEXT = [["e:1"], ["f:1"]]
DAY_MS = 24 * 3_600_000


def story(told: Story) -> Story:
    STORIES[told.__name__.replace("_", "-")] = told
    return told


def flat(tasks: Sequence[Sequence[str]]) -> list[str]:
    return sorted(row for rows in tasks for row in rows)


@contextmanager
def stopped(stop: Stop) -> Iterator[None]:
    """The block must be stopped by the sink, for that reason."""
    try:
        yield
    except SinkStopped as found:
        assert found.stop is stop, str(found)
        return
    raise AssertionError(f"not stopped: {stop.value}")


def is_there(world: World, query: Query, rows: Sequence[str]) -> None:
    """These rows and no others, and nothing that readers have to wait for."""
    log = world.log(query)
    found = sorted(row for rows in log.committed.values() for row in rows)
    assert found == sorted(rows), f"{found} instead of {sorted(rows)}"
    assert not log.open_count, f"{log.open_count} transactions are open"


def decided_and_killed(query: Query, step: str = "after decide", nth: int = 1) -> Driver:
    driver = Driver(query)
    killed_at(driver, step, nth)
    with killed():
        driver.write(0, FIRST)
    return driver


def timed_out(driver: Driver, reports: Sequence[TaskReport]) -> None:
    """As the coordinator does when the time of a transaction is over."""
    opened = [report.opened for report in reports if report.opened is not None]
    transactions = Cluster({"bootstrap.servers": driver.query.bootstrap}).transactions
    transactions.end(opened, commits=False, timeout_ms=60_000)


# A replay.


@story
def a_replay_with_fewer_tasks_writes_each_row_once(world: World) -> None:
    query = world.query()
    driver = Driver(query)
    killed_at(driver, "after flush", 2)
    with killed():
        driver.write(0, FIRST)
    replay = [[row for rows in FIRST for row in rows]]
    Driver(query).write(0, replay)
    is_there(world, query, flat(replay))


@story
def a_decided_batch_is_not_written_again(world: World) -> None:
    query = world.query()
    decided_and_killed(query, "after commit", 2)
    Driver(query).write(0, AGAIN)
    is_there(world, query, flat(FIRST))


@story
def a_batch_that_was_decided_is_ended_by_the_list_of_its_marker(world: World) -> None:
    query = world.query()
    decided_and_killed(query, "after commit", 1)
    driver = Driver(query)
    driver.write(0, AGAIN)
    driver.write(1, NEXT)
    is_there(world, query, [*flat(FIRST), *flat(NEXT)])


@story
def a_replay_without_rows_ends_what_was_decided(world: World) -> None:
    query = world.query()
    decided_and_killed(query)
    Driver(query).write(0, [[], []])
    is_there(world, query, flat(FIRST))


@story
def a_long_list_is_kept_whole(world: World) -> None:
    query = world.query()
    many = [[f"{number}:1"] for number in range(260)]
    driver = Driver(query)
    killed_at(driver, "after decide")
    with killed():
        driver.write(0, many)
    Driver(query).write(0, AGAIN)
    is_there(world, query, flat(many))


@story
def a_list_that_does_not_fit_stops_before_anything_is_decided(world: World) -> None:
    query = world.query(marker_topic="narrow")
    admin = world.cluster
    admin.wake("narrow")
    many = [[f"{number}:1"] for number in range(520)]
    driver = Driver(query)
    with stopped(Stop.TOO_MANY):
        driver.write(0, many)
    is_there(world, query, [])
    Driver(query).write(0, FIRST)
    is_there(world, query, flat(FIRST))


@story
def parts_of_an_earlier_longer_list_do_not_count(world: World) -> None:
    query = world.query()
    many = [[f"{number}:1"] for number in range(260)]
    driver = Driver(query)
    killed_at(driver, "after decide")
    with killed():
        driver.write(0, many)
    timed_out(driver, entries_listed(world, query, driver))
    second = Driver(query)
    killed_at(second, "after decide")
    with killed():
        second.write(0, FIRST)
    Driver(query).write(0, AGAIN)
    is_there(world, query, flat(FIRST))


def entries_listed(world: World, query: Query, driver: Driver) -> list[TaskReport]:
    """What the marker lists, as reports."""
    marker = Driver(query).decider()._read_marker()
    assert marker is not None
    place = driver.task(0, 0, []).place
    return [TaskReport(place, opened, 1, 0) for opened in marker.opened]


# Attempts at a task.


@story
def a_second_attempt_leaves_the_first_alone(world: World) -> None:
    query = world.query()
    driver = Driver(query)
    reports = driver.tasks(0, FIRST)
    driver.task(0, 0, ["a:2"], attempt=1, slots=Slots())  # speculative, and never reported
    driver.commit(0, reports)
    driver.write(1, NEXT)
    later = Driver(query)
    later.write(2, [["g:1"]])
    is_there(world, query, [*flat(FIRST), *flat(NEXT), "g:1"])


@story
def what_a_killed_worker_leaves_open_is_aborted_with_the_batch(world: World) -> None:
    query = world.query()
    driver = Driver(query)
    driver.write(0, FIRST)
    reports = driver.tasks(1, NEXT)
    repeated = driver.task(1, 0, ["e:2"], attempt=1, slots=Slots())
    driver.commit(1, [repeated, reports[1]])
    is_there(world, query, [*flat(FIRST), "e:2", "f:1"])


@story
def a_failed_task_aborts_the_batch(world: World) -> None:
    query = world.query()
    driver = Driver(query)
    reports = driver.tasks(0, FIRST)
    driver.decider().abort(0, reports)
    is_there(world, query, [])
    Driver(query).write(0, AGAIN)
    is_there(world, query, flat(AGAIN))


@story
def a_slot_is_used_again_in_its_run(world: World) -> None:
    query = world.query()
    driver = Driver(query)
    seen: set[str] = set()
    for batch in range(4):
        reports = driver.tasks(batch, FIRST)
        seen |= {report.opened.transactional_id for report in reports if report.opened is not None}
        driver.commit(batch, reports)
    assert len(seen) == 2, seen
    is_there(world, query, [*flat(FIRST)] * 4)


# Two drivers.


@story
def of_two_drivers_one_decides(world: World) -> None:
    query = world.query()
    first, second = Driver(query), Driver(query)
    first.write(0, [["z:1"]])
    query.plan(1, first.now_ms)
    ours, theirs = first.tasks(1, FIRST), second.tasks(1, AGAIN)
    one = Held(first, "before marker", lambda: first.decider().commit(1, ours), nth=1)
    two = Held(second, "after marker", lambda: second.decider().commit(1, theirs))
    problem = one.go()
    assert isinstance(problem, SinkStopped) and problem.stop is Stop.FENCED, problem
    assert two.go() is None
    first.decider().abort(1, ours)
    is_there(world, query, ["z:1", *flat(AGAIN)])


@story
def a_sweep_never_aborts_what_another_driver_decides_on(world: World) -> None:
    query = world.query()
    first, second = Driver(query), Driver(query)
    ours, theirs = first.tasks(0, FIRST), second.tasks(0, AGAIN)
    sweeping = Held(second, "after list", lambda: second.decider().commit(0, theirs))
    deciding = Held(first, "before marker", lambda: first.decider().commit(0, ours))
    problem = sweeping.go()
    assert isinstance(problem, SinkStopped) and problem.stop is Stop.FENCED, problem
    assert deciding.go() is None
    second.decider().abort(0, theirs)
    is_there(world, query, flat(FIRST))


@story
def a_late_sweep_does_not_touch_the_next_transaction_of_an_id(world: World) -> None:
    query = world.query()
    first, second = Driver(query), Driver(query)
    lost, theirs = first.tasks(0, FIRST), second.tasks(0, AGAIN)
    sweeping = Held(second, "before abort", lambda: second.decider().commit(0, theirs))
    first.commit(0, lost)  # decided by the other: its rows are left out, its ids are free again
    reports = first.tasks(1, NEXT)
    deciding = Held(first, "after decide", lambda: first.decider().commit(1, reports))
    assert sweeping.go() is None
    assert deciding.go() is None, deciding.problem
    is_there(world, query, [*flat(AGAIN), *flat(NEXT)])


@story
def an_old_driver_that_wakes_up_decides_nothing(world: World) -> None:
    query = world.query()
    old = Driver(query)
    reports = old.tasks(0, FIRST)
    new = Driver(query)
    new.write(0, AGAIN)
    new.write(1, NEXT)
    with stopped(Stop.OLD):
        old.commit(0, reports)
    is_there(world, query, [*flat(AGAIN), *flat(NEXT)])


# Checkpoints.


@story
def a_checkpoint_that_is_behind_stops(world: World) -> None:
    query = world.query()
    driver = Driver(query)
    driver.write(0, FIRST)
    backup = query.copied(query.folder.with_name(query.topic + "-backup"))
    driver.write(1, NEXT)
    driver.write(2, [["g:1"]])
    with stopped(Stop.OLD):
        Driver(backup).write(1, AGAIN)
    is_there(world, query, [*flat(FIRST), *flat(NEXT), "g:1"])
    backup.options = {"resume_at": 1}
    Driver(backup).write(1, AGAIN)
    is_there(world, query, [*flat(FIRST), *flat(NEXT), "g:1", *flat(AGAIN)])


@story
def a_copied_checkpoint_stops(world: World) -> None:
    query = world.query()
    driver = Driver(query)
    driver.write(0, FIRST)
    copy = query.copied(query.folder.with_name(query.topic + "-copy"))
    driver.write(1, NEXT)
    with stopped(Stop.OTHER):
        Driver(copy).write(1, AGAIN)
    is_there(world, query, [*flat(FIRST), *flat(NEXT)])


@story
def a_copy_without_prints_stops_by_the_sum_of_its_rows(world: World) -> None:
    query = world.query(checkpoint=None)
    Driver(query).write(0, FIRST)
    with stopped(Stop.OTHER):
        Driver(query).write(0, AGAIN)
    Driver(query).write(0, [flat(FIRST)])
    is_there(world, query, flat(FIRST))


@story
def a_marker_that_is_gone_stops_an_old_batch(world: World) -> None:
    query = world.query()
    old = Driver(query, now_ms=1_800_000_000_000)
    query.plan(7, old.now_ms)
    late = Driver(query, now_ms=old.now_ms + DAY_MS + 1)
    with stopped(Stop.GONE):
        late.write(7, FIRST)
    is_there(world, query, [])
    soon = Driver(query, now_ms=old.now_ms + DAY_MS - 1)
    soon.write(7, FIRST)
    is_there(world, query, flat(FIRST))


# Transactions that time out.


@story
def a_transaction_that_timed_out_before_the_decision_stops(world: World) -> None:
    query = world.query()
    driver = Driver(query)
    reports = driver.tasks(0, FIRST)
    timed_out(driver, reports[:1])
    with stopped(Stop.LOST):
        driver.commit(0, reports)
    is_there(world, query, [])
    Driver(query).write(0, AGAIN)
    is_there(world, query, flat(AGAIN))


@story
def a_transaction_that_is_about_to_time_out_stops(world: World) -> None:
    query = world.query()
    driver = Driver(query)
    reports = driver.tasks(0, FIRST)
    opened = reports[1].opened
    assert opened is not None
    list_open = driver.wire.list_open

    def list_old(pattern: str, older_than_ms: int = -1) -> list[str]:
        """As a broker answers when the transaction is that old."""
        found: list[str] = list_open(pattern)
        return [opened.transactional_id] if older_than_ms > 0 else found

    driver.wire.list_open = list_old  # type: ignore[method-assign]
    driver.now_ms += TIMEOUT_MS
    with stopped(Stop.LOST):
        driver.commit(0, reports)
    is_there(world, query, [])


@story
def a_clock_that_jumps_stops_nothing(world: World) -> None:
    query = world.query()
    driver = Driver(query)
    reports = driver.tasks(0, FIRST)
    driver.now_ms += TIMEOUT_MS  # the transactions are young by the clock of the broker
    driver.commit(0, reports)
    is_there(world, query, flat(FIRST))


@story
def a_batch_whose_transactions_all_timed_out_is_decided_again(world: World) -> None:
    query = world.query()
    driver = Driver(query)
    reports = driver.tasks(0, FIRST)
    killed_at(driver, "after decide")
    with killed():
        driver.commit(0, reports)
    timed_out(driver, reports)
    Driver(query).write(0, AGAIN)
    is_there(world, query, flat(AGAIN))


@story
def a_torn_batch_is_completed_if_it_is_computed_as_before(world: World) -> None:
    query = world.query()
    torn(query)
    Driver(query).write(0, FIRST)
    is_there(world, query, flat(FIRST))


@story
def a_torn_batch_stops_if_it_is_computed_otherwise(world: World) -> None:
    query = world.query()
    torn(query)
    with stopped(Stop.TORN):
        Driver(query).write(0, AGAIN)
    is_there(world, query, FIRST[0])
    query.options = {"torn_batch": "skip"}
    Driver(query).write(0, AGAIN)
    is_there(world, query, FIRST[0])
    query.done(0)
    Driver(query).write(1, NEXT)
    is_there(world, query, [*FIRST[0], *flat(NEXT)])


@story
def a_torn_batch_can_be_written_again(world: World) -> None:
    query = world.query(torn_batch="rewrite")
    torn(query)
    Driver(query).write(0, AGAIN)
    is_there(world, query, [*FIRST[0], *flat(AGAIN)])


def torn(query: Query) -> None:
    driver = Driver(query)
    reports = driver.tasks(0, FIRST)
    killed_at(driver, "after commit")
    with killed():
        driver.commit(0, reports)
    timed_out(driver, reports[1:])


# What fails after the decision.


@story
def a_decided_batch_is_never_aborted(world: World) -> None:
    query = world.query()
    driver = Driver(query)
    reports = driver.tasks(0, FIRST)

    def fail(step: str, _number: int) -> None:
        if step == "before commit":
            raise GaveUp("the brokers do not answer")

    driver.wire.at = fail
    try:
        driver.decider().commit(0, reports)
    except ClientError:
        driver.wire.at = lambda step, number: None
        driver.decider().abort(0, reports)
    is_there(world, query, flat(FIRST))
    Driver(query).write(0, AGAIN)
    is_there(world, query, flat(FIRST))


@story
def a_decision_whose_answer_is_lost_is_looked_up(world: World) -> None:
    query = world.query()
    driver = Driver(query)
    reports = driver.tasks(0, FIRST)

    def fail(step: str, _number: int) -> None:
        if step == "after decide":
            raise GaveUp("the answer is lost")

    driver.wire.at = fail
    driver.decider().commit(0, reports)
    is_there(world, query, flat(FIRST))


@story
def a_marker_is_read_only_when_no_transaction_may_change_it(world: World) -> None:
    query = world.query()
    transactions = Cluster({"bootstrap.servers": query.bootstrap}).transactions
    place = TopicPartition(query.topic, 0)
    for offset in (3, 4):
        opened = transactions.begin(query.sink_id, 60_000)
        transactions.commit_offsets(opened, query.sink_id, {place: CommittedOffset(offset, "")})
        assert "UNSTABLE_OFFSET_COMMIT" in told_in_a_hurry(query, place)
        transactions.end([opened], commits=True, timeout_ms=60_000)
        assert transactions.committed(query.sink_id, [place])[place].offset == offset


def told_in_a_hurry(query: Query, place: TopicPartition) -> str:
    """What is told instead of an offset; with more time if the machine is too slow for an answer."""
    told = ""
    for timeout_ms in (300, 3_000, 30_000):
        hurried = Cluster({"bootstrap.servers": query.bootstrap, "default.api.timeout.ms": str(timeout_ms)})
        try:
            found = hurried.transactions.committed(query.sink_id, [place])
        except (GaveUp, ConnectionLost) as problem:
            told = str(problem)
            if "UNSTABLE_OFFSET_COMMIT" in told:
                break
        else:
            raise AssertionError(f"{found} while the transaction is open")
    return told


# Versions, and jobs without one.


@story
def a_version_that_was_decided_is_finished_before_the_next(world: World) -> None:
    query = world.query(is_versioned=True, checkpoint=None)
    slots = Slots()  # of a worker process that outlives both jobs
    first = Driver(query, slots)
    killed_at(first, "after decide")
    with killed():
        first.write(4, FIRST)
    Driver(query, slots).write(5, NEXT)
    is_there(world, query, [*flat(FIRST), *flat(NEXT)])


@story
def a_worker_uses_no_slot_of_another_run(world: World) -> None:
    query = world.query(is_versioned=True, checkpoint=None)
    slots = Slots()
    first = Driver(query, slots)
    killed_at(first, "after decide")
    with killed():
        first.write(4, FIRST)
    second = Driver(query, slots)
    second.tasks(5, NEXT)  # before its driver has finished version 4
    Driver(query).write(5, NEXT)
    is_there(world, query, [*flat(FIRST), *flat(NEXT)])


@story
def a_version_that_is_not_above_the_last_is_skipped(world: World) -> None:
    query = world.query(is_versioned=True, checkpoint=None)
    Driver(query).write(4, FIRST)
    Driver(query).write(4, AGAIN)
    Driver(query).write(3, AGAIN)
    Driver(query).write(9, NEXT)
    is_there(world, query, [*flat(FIRST), *flat(NEXT)])


@story
def a_job_writes_all_or_nothing(world: World) -> None:
    query = world.query(is_job=True)
    driver = Driver(query)
    reports = driver.tasks(0, FIRST)
    timed_out(driver, reports[1:])
    with stopped(Stop.LOST):
        driver.commit(0, reports)
    is_there(world, query, [])
    left = driver.tasks(0, AGAIN)
    again = driver.task(0, 0, ["c:3"], attempt=1, slots=Slots())
    driver.commit(0, [again, *left[1:]])
    is_there(world, query, ["c:3", *AGAIN[1]])


# Sinks beside each other.


@story
def sinks_whose_names_begin_alike_leave_each_other_alone(world: World) -> None:
    longer = world.query()
    longer.name = "a/0123456789abcdef"
    longer.query_id = "q"
    shorter = Query(world.bootstrap, longer.folder.with_name("shorter"), longer.topic, "q", "a")
    driver = Driver(longer)
    reports = driver.tasks(0, FIRST)
    Driver(shorter).write(0, NEXT)
    driver.commit(0, reports)
    is_there(world, longer, [*flat(FIRST), *flat(NEXT)])


@story
def the_topic_of_the_marker_may_change(world: World) -> None:
    query = world.query()
    decided_and_killed(query)
    world.cluster.wake("elsewhere")
    query.options = {"marker_topic": "elsewhere"}
    driver = Driver(query)
    driver.write(0, AGAIN)
    driver.write(1, NEXT)
    is_there(world, query, [*flat(FIRST), *flat(NEXT)])


# Everything else: a kill at each request.


def steps_of_an_undisturbed_run(world: World) -> list[str]:
    driver = Driver(world.query())
    write_all(driver, 0)
    return driver.wire.steps


def write_all(driver: Driver, life: int) -> None:
    """Three batches, the rows of which know in which life they were computed; fewer tasks in each life."""
    for batch in range(3):
        if not driver.query.is_done(batch):
            rows = [f"{batch}{key}:{life}" for key in "abcd"]
            driver.write(batch, [rows[first :: 3 - life % 3] for first in range(3 - life % 3)])


def killed_at_each_step(world: World, numbers: Sequence[int]) -> None:
    """Whatever was killed, each row is there once, and a batch is of one life."""
    for number in numbers:
        query = world.query()
        driver = Driver(query)

        def look(step: str, reached: int, number: int = number) -> None:
            if reached == number:
                raise Killed(step)

        driver.wire.at = look
        with killed():
            write_all(driver, 0)
        write_all(Driver(query), 1)
        write_all(Driver(query), 2)
        log = world.log(query)
        found = sorted(row for rows in log.committed.values() for row in rows)
        step = f"killed at step {number}, {driver.wire.steps[-1]}"
        assert [row.split(":")[0] for row in found] == [f"{b}{key}" for b in range(3) for key in "abcd"], step
        lives = {batch: {row[-1] for row in found if row[0] == batch} for batch in "012"}
        assert all(len(each) == 1 for each in lives.values()), f"{step}: {lives}"


@story
def a_kill_before_or_after_any_request_loses_and_doubles_nothing(world: World) -> None:
    """In `make soak` at every step, else at some of them, all of which `make test` reaches in the end."""
    count = len(steps_of_an_undisturbed_run(world))
    step = 1 if is_soak() else KILLS_APART
    killed_at_each_step(world, range(Random(choose_seed()).randrange(step) + 1, count + 1, step))


def tell(name: str) -> None:
    with tempfile.TemporaryDirectory() as folder, world(Path(folder)) as here:
        STORIES[name](here)


if __name__ == "__main__":
    sys.modules["hypothesis"] = None  # type: ignore[assignment]  # kio would load it, and nobody uses it here
    try:
        tell(sys.argv[1])
    except (AssertionError, SinkStopped, ClientError) as failure:
        print(f"{sys.argv[1]}: {failure!r}")
        sys.exit(FOUND)
