"""fq_make_load_groups: what a load has created is counted as members of groups that its transaction makes."""

from uuid import UUID, uuid4

import pytest

from tests.sql.client import Kernel, OpenKernel, refused
from tests.sql.load.loads import copy, make_channels, make_stage, merge, messages, staged
from tests.sql.plans import explained

pytestmark = pytest.mark.usefixtures("balanced")


def make_groups(kernel: Kernel, stage: str, *attempts: int) -> int:
    """fq_make_load_groups, without a message that follows."""
    nothing = ", ".join(["null"] * 12)
    made: int = kernel.value(
        f"select fq_make_load_groups('q', %(stage)s, %(attempts)s, {nothing})",
        stage=stage,
        attempts=list(attempts or (1,)),
    )
    return made


def added(kernel: Kernel, group: UUID) -> int | None:
    """How many members a group has."""
    counts = "select max(added) from fq_groups('q', %(group)s, null, null, null, 1)"
    found: int | None = kernel.value(counts, group=group)
    return found


def test_members_are_those_that_were_created(kernel: Kernel) -> None:
    """Duplicates, messages that a full channel drops, and copies that do not count are no members."""
    one, two, three = uuid4(), uuid4(), uuid4()
    stage = make_stage(kernel)
    copy(kernel, stage, *"aaab", key=["k", "k", None, None], group_id=[one, one, one, two])
    copy(kernel, stage, "a", attempt=2, group_id=[three])
    copy(kernel, stage, "bounded", "bounded", "bounded", attempt=3, group_id=[one, two, two])
    make_channels(kernel, stage, 1, 3, max_backlog=1, drop=True)
    kernel.rows("select fq_configure_channel('q', c, '{\"max_backlog\": null}') from unnest('{a,b}'::text[]) c")
    merged = merge(kernel, stage, 7, 1, 3)
    assert (merged.created, merged.duplicates, merged.dropped) == (4, 1, 2)
    assert make_groups(kernel, stage, 1, 3) == 2
    counts = kernel.rows("select group_id, count(*) from fq_message group by group_id")
    assert {row["group_id"]: row["count"] for row in counts} == {
        group: added(kernel, group) for group in (one, two) if added(kernel, group)
    }
    assert added(kernel, three) is None
    told = kernel.rows("select distinct headers ->> 'group' = group_id::text as same from fq_message")
    assert told == [{"same": True}]


def test_a_stage_without_groups_makes_none(kernel: Kernel) -> None:
    """Nothing is written."""
    stage = staged(kernel, "a")
    merge(kernel, stage, 1)
    assert make_groups(kernel, stage) == 0
    assert kernel.value("select count(*) from fq_group") == 0
    assert messages(kernel) == [("a", "a")]


def test_a_group_that_exists_is_refused(kernel: Kernel, open_kernel: OpenKernel) -> None:
    """Its members would be in two loads: with the second nothing is enqueued."""
    group = uuid4()
    stages = [staged(kernel, "a", group_id=[group]) for _ in range(2)]
    merging = open_kernel()
    merge(merging, stages[0], 1, job="one")
    assert make_groups(merging, stages[0]) == 1
    merging.commit()
    merge(merging, stages[1], 1, job="two")
    with refused(match=f"there is a group {group} already"):
        make_groups(merging, stages[1])
    merging.rollback()
    assert (added(kernel, group), len(messages(kernel))) == (1, 1)


@pytest.mark.usefixtures("cloned")
def test_members_are_counted_by_index(kernel: Kernel) -> None:
    """Also where the statistics know one large group alone, and expect all messages to be of each."""
    large = uuid4()
    kernel.enqueue("a")
    kernel.rows(
        "insert into fq_message (channel_id, kind, content, dequeue_at, enqueued_at, max_attempts, group_id)"
        " select channel_id, kind, content, dequeue_at, enqueued_at, max_attempts, %(large)s"
        " from fq_message, generate_series(1, 5000)",
        large=large,
    )
    kernel.rows("analyze fq_message")
    groups = [uuid4() for _ in range(20)]
    stage = staged(kernel, *"a" * 40, group_id=[*groups, *groups])
    merge(kernel, stage, 40)
    with explained(kernel) as scans:
        make_groups(kernel, stage)
    assert [scan.index for scan in scans if scan.table == "fq_message"] == ["fq_message_group_ix"]
    assert max(scan.rows for scan in scans if scan.table == "fq_message") <= 2 * len(groups)
    assert {added(kernel, group) for group in groups} == {2}
    kernel.rows("delete from fq_message where group_id = %(large)s", large=large)
