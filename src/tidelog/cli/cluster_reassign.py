"""`tidelog cluster reassign`: moves replicas between brokers, by the user's plan or a computed one.

The plan is computed here and requested by the Kafka protocol alone, so it works on any Kafka cluster.

**Invariant:** nothing moves before the plan was shown and confirmed, or with --yes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Annotated

import typer

from tidelog.cli import cluster_ongoing as ongoing
from tidelog.cli.cluster_layout import Place
from tidelog.cli.cluster_moves import Move, keeps_books, list_moves, request_moves, unregister
from tidelog.cli.cluster_ongoing import count, ids
from tidelog.cli.cluster_partitions import Picture, take_picture
from tidelog.cli.cluster_plan_file import plan_json, read_plan
from tidelog.cli.cluster_progress import HOW_TO_GO_ON, watch
from tidelog.cli.cluster_proposal import Proposal, free_space_problems, propose
from tidelog.cli.cluster_throttle import set_throttle
from tidelog.cli.failure import BadWord, Failure
from tidelog.cli.names import complete_topic
from tidelog.cli.options import DEFAULT_BOOTSTRAP_SERVER, BootstrapServer, TableFormat, TableOrJson
from tidelog.cli.screen import print_json, print_table, size_text

_ROWS_SHOWN_MAX = 200  # what scrolls by; the others are counted
_ANOTHER_LEADS = (
    "leadership goes to the first replicas by itself, or at once by 'tidelog cluster elect --preferred'"
)


def reassign(
    file: Annotated[
        Path | None,
        typer.Option(metavar="PLAN", help="Kafka's JSON; - is stdin. Also for --verify and --cancel."),
    ] = None,
    rebalance: Annotated[
        bool, typer.Option("--rebalance", help="Balance replicas and leaders with the fewest copies.")
    ] = False,
    decommission: Annotated[
        list[int] | None,
        typer.Option(metavar="ID", help="Move all replicas off this broker (may be repeated).", min=0),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(help="Only this topic (may be repeated).", autocompletion=complete_topic),
    ] = None,
    brokers: Annotated[
        str | None, typer.Option(metavar="ID,…", help="Rebalance over these brokers only.")
    ] = None,
    throttle: Annotated[
        int | None,
        typer.Option(metavar="BYTES", help="The most bytes per second that a broker copies.", min=1),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan, move nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before moving.")] = False,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Return without waiting for the end.")] = False,
    show: Annotated[bool, typer.Option("--list", help="Show the partitions that are moving.")] = False,
    watching: Annotated[
        bool, typer.Option("--watch", help="Watch the moving partitions until all are done.")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Exit code 0 if the plan is complete, or nothing moves.")
    ] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Cancel the moves under way.")] = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    format: TableOrJson = TableFormat.TABLE,
) -> None:
    """Move replicas: by a plan (--file), evenly over brokers (--rebalance), or off one (--decommission)."""
    _check_words(
        {"--file": file is not None, "--rebalance": rebalance, "--decommission": bool(decommission)},
        {"--list": show, "--watch": watching, "--verify": verify, "--cancel": cancel},
        {"--throttle": throttle is not None, "--dry-run": dry_run, "--no-wait": no_wait},
    )
    if brokers is not None and not rebalance:
        raise BadWord(f"--brokers {brokers}: needs --rebalance")
    if topic and decommission:
        raise BadWord("--decommission: moves all topics; leave out --topic")
    plan = read_plan(file) if file is not None else None

    def is_chosen(place: Place) -> bool:
        return (not topic or place[0] in topic) and (plan is None or place in plan)

    if show:
        ongoing.list_ongoing(bootstrap_server, is_chosen, format)
    elif watching:
        ongoing.watch_ongoing(bootstrap_server, is_chosen)
    elif verify:
        ongoing.verify(bootstrap_server, plan, is_chosen, format)
    elif cancel:
        ongoing.cancel(bootstrap_server, is_chosen, format)
    else:
        if plan is not None:
            plan = {place: replicas for place, replicas in plan.items() if is_chosen(place)}
        proposal = Proposal(plan, _parse_ids(brokers), frozenset(decommission or ()), tuple(topic or ()))
        _run(bootstrap_server, proposal, throttle, dry_run, yes, no_wait, format)


def _check_words(plans: dict[str, bool], verbs: dict[str, bool], manners: dict[str, bool]) -> None:
    """Check the combination of options: one plan, or one verb; a verb may have a file."""
    chosen = [word for word, is_named in {**plans, **verbs}.items() if is_named]
    named_verbs = [word for word in verbs if verbs[word]]
    if not chosen:
        raise BadWord(f"name one of {', '.join([*plans, *verbs])}; see 'tidelog cluster reassign --help'")
    if len(chosen) > 1 and not (len(named_verbs) == 1 and set(chosen) == {"--file", *named_verbs}):
        raise BadWord(f"{' and '.join(chosen)} cannot be combined; name one")
    for word, is_named in manners.items():
        if is_named and named_verbs:
            raise BadWord(f"{word} cannot be combined with {named_verbs[0]}")


def _parse_ids(words: str | None) -> frozenset[int] | None:
    if words is None:
        return None
    found = [word.strip() for word in words.split(",")]
    if not all(word.isascii() and word.isdigit() for word in found):
        raise BadWord(f"--brokers {words}: not a list of ids; write --brokers 1,2,3")
    return frozenset(map(int, found))


def _run(
    bootstrap_server: str,
    proposal: Proposal,
    throttle: int | None,
    dry_run: bool,
    yes: bool,
    no_wait: bool,
    format: TableFormat,
) -> None:
    picture = take_picture(bootstrap_server)
    moves, disks = propose(picture, proposal, list_moves(bootstrap_server))
    if dry_run and format is TableFormat.JSON:
        print_json(plan_json({move.place: move.after for move in moves}))
        return
    is_told = format is TableFormat.TABLE
    if is_told:
        _print(moves)
    for problem in free_space_problems(moves, disks):
        typer.echo(f"tidelog: {problem}", err=True)
    if dry_run:
        print("(dry run: nothing moved)")
        return
    outcomes: dict[Place, str | None] = {}
    if moves:
        if not yes:
            _ask(moves)
        outcomes = _move(bootstrap_server, picture, moves, throttle, no_wait)
    _report(moves, outcomes, no_wait, throttle is not None, format)
    if proposal.leaving and not no_wait:
        for words in _part(bootstrap_server, proposal.leaving):
            typer.echo(words, err=not is_told)


def _print(moves: Collection[Move]) -> None:
    if not moves:
        print("nothing to move: all replicas are where they should be")
        return
    rows = [(move.topic, move.number, ids(move.before), ids(move.after), _size_words(move)) for move in moves]
    print_table(("topic", "partition", "from", "to", "to copy"), rows[:_ROWS_SHOWN_MAX])
    if len(rows) > _ROWS_SHOWN_MAX:
        print(f"… and {len(rows) - _ROWS_SHOWN_MAX} more; --dry-run --format json shows all\n")
    print(_summary(moves))


def _size_words(move: Move) -> str:
    return size_text(move.copied_size) if move.adding else "nothing: other order"


def _summary(moves: Collection[Move]) -> str:
    copies = sum(len(move.adding) for move in moves)
    sizes = [move.copied_size for move in moves]
    size = "" if any(one < 0 for one in sizes) else f" ({size_text(sum(sizes))})"
    words = "1 copy" if copies == 1 else f"{copies or 'no'} copies"
    return f"{count(len(moves), 'partition')}, {words} to make{size}"


def _ask(moves: Collection[Move]) -> None:
    try:
        is_sure = typer.confirm("Move?", err=True)
    except typer.Abort:
        raise Failure("nothing was moved: not confirmed; --yes moves without asking") from None
    if not is_sure:
        raise Failure("nothing was moved")


def _move(
    bootstrap_server: str, picture: Picture, moves: list[Move], throttle: int | None, no_wait: bool
) -> dict[Place, str | None]:
    """For each partition why it does not move, or None; unless `no_wait`, the others have arrived."""
    try:
        if throttle is not None:
            set_throttle(bootstrap_server, picture, [move for move in moves if move.adding], throttle)
        outcomes = request_moves(bootstrap_server, {move.place: move.after for move in moves})
    except Failure:
        ongoing.finish(bootstrap_server, is_quiet=True)
        raise
    accepted = [move for move in moves if outcomes[move.place] is None]
    if accepted and not no_wait:
        watch(bootstrap_server, accepted)
        after = ongoing.await_arrival(bootstrap_server, accepted)
        arrived = {move.place for move in accepted}
        if after.where(lambda part: (part.topic, part.number) in arrived and part.is_led_by_another):
            typer.echo(_ANOTHER_LEADS, err=True)
    if throttle is not None and (not no_wait or not accepted):
        ongoing.finish(bootstrap_server, is_quiet=True, is_throttled=True)
    return outcomes


def _report(
    moves: list[Move],
    outcomes: dict[Place, str | None],
    no_wait: bool,
    is_throttled: bool,
    format: TableFormat,
) -> None:
    refused = [move for move in moves if outcomes[move.place] is not None]
    accepted = len(moves) - len(refused)
    if format is TableFormat.JSON:
        facts = [
            {
                "topic": move.topic,
                "partition": move.number,
                "from": list(move.before),
                "to": list(move.after),
                "size": move.copied_size if move.size >= 0 else None,
                "error": outcomes[move.place],
            }
            for move in moves
        ]
        print_json({"is_done": not no_wait and not refused, "partitions": facts})
    else:
        if refused:
            print_table(
                ("topic", "partition", "refused because"),
                [(move.topic, move.number, outcomes[move.place]) for move in refused],
            )
        if accepted and no_wait:
            throttled = "; --watch or --verify removes the throttle at the end" if is_throttled else ""
            print(f"moving: {count(accepted, 'partition')}; {HOW_TO_GO_ON}{throttled}")
        elif accepted:
            print(f"moved: {count(accepted, 'partition')}")
    if refused:
        raise Failure(f"{len(refused)} of {len(moves)} moves were refused; see 'tidelog cluster health'")


def _part(bootstrap_server: str, leaving: Collection[int]) -> Iterator[str]:
    """The remaining steps for brokers without replicas; stopped brokers are unregistered."""
    picture = take_picture(bootstrap_server)
    for broker in sorted(leaving):
        if held := picture.on(broker):
            raise Failure(
                f"broker {broker} has got {held[0].name} in the meantime; run the same command again"
            )
        if broker in picture.live:
            # Only after it has stopped: an unregistered broker would go on running.
            again = ", then run this again to unregister it" if keeps_books(bootstrap_server) else ""
            yield f"broker {broker} holds no replicas now: it can be stopped{again}"
        else:
            is_known = keeps_books(bootstrap_server) and unregister(bootstrap_server, broker)
            state = "is unregistered" if is_known else "is not in the cluster"
            yield f"broker {broker} holds no replicas now and {state}"
