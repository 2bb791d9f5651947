"""Whatever broke something once, and every seed, is tried again; and every API has seeds."""

from __future__ import annotations

import pytest

from tests.fuzz.seeds import FOLDER, head_of, seed_name
from tests.fuzz.targets import CRASHES, SEEDS, TARGETS, check_what_is_left, crashes
from tidelog.protocol.apis import APIS
from tidelog.protocol.messages import decode_request

KINDS = ("plausible", "filled", "unset")
SEEDS_SIZE_MAX = 500_000
FOUND = [(target, name) for target in TARGETS for name in crashes(target)]


@pytest.mark.parametrize("target", TARGETS)
def test_no_seed_breaks_anything(target: str) -> None:
    seeds = TARGETS[target].seeds()
    assert seeds
    for name, content in seeds.items():
        try:
            TARGETS[target].run(content)
        except Exception as found:
            raise AssertionError(f"the seed {name} breaks {target}") from found
    check_what_is_left()


@pytest.mark.parametrize(("target", "name"), FOUND)
def test_what_broke_something_once_breaks_nothing(target: str, name: str) -> None:
    TARGETS[target].run(crashes(target)[name])
    check_what_is_left()


def test_every_api_and_version_has_seeds() -> None:
    names = {
        seed_name(api.key, version, kind)
        for api in APIS
        for version in range(api.oldest_version, api.newest_version + 1)
        for kind in KINDS[:2]
    }
    there = {path.stem for path in (SEEDS / "requests").glob("*.bin")}
    assert sorted(names - there) == [], "python -m tests.fuzz.seeds makes them"


def test_the_seeds_of_requests_can_be_decoded() -> None:
    """What is refused at the door leads the fuzzer nowhere."""
    flexible = {api.key: api.flexible_version for api in APIS}
    for kind in KINDS:
        for path in (SEEDS / "requests").glob(f"*-{kind}.bin"):
            frame = path.read_bytes()
            key, version = head_of(frame)
            if key in flexible:
                client_id_size = int.from_bytes(frame[8:10], "big")
                decode_request(key, version, frame, 10 + client_id_size + (version >= flexible[key]))


def test_every_file_belongs_to_a_target_and_all_are_small() -> None:
    seeds = [path for path in FOLDER.rglob("*") if path.is_file()]
    used = {folder for target in TARGETS.values() for folder in target.seed_folders}
    assert {path.parent.name for path in seeds} == used
    assert sum(path.stat().st_size for path in seeds) < SEEDS_SIZE_MAX
    assert {path.parent.name for path in CRASHES.rglob("*.bin")} <= {*TARGETS}
