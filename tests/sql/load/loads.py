"""Bulk loads as SQL: a stage, its rows, the channels, the merge."""

from typing import Any, NamedTuple

from tests.sql.client import HOUR, Kernel, policy_json


class Merged(NamedTuple):
    """What fq_merge answers."""

    merged: bool
    messages: int
    created: int
    replaced: int
    duplicates: int
    dropped: int
    rejected: int


def make_stage(kernel: Kernel, ttl: int = 24 * HOUR) -> str:
    """fq_make_stage."""
    name: str = kernel.value("select fq_make_stage(%(ttl)s)", ttl=ttl)
    return name


def copy(kernel: Kernel, stage: str, *channels: str, attempt: int = 1, **columns: Any) -> None:
    """One copy into a stage: a message a channel named, further columns as lists."""
    for number, channel in enumerate(channels):
        values = {"attempt": attempt, "channel": channel} | {name: given[number] for name, given in columns.items()}
        values = {"kind": "work", "content": channel.encode()} | values
        kernel.rows(
            f"insert into public_stages.{stage} ({', '.join(values)})"
            f" values ({', '.join(f'%({name})s' for name in values)})",
            **values,
        )


def make_channels(
    kernel: Kernel,
    stage: str,
    *attempts: int,
    limit: int = 1000,
    max_backlog: int | None = None,
    drop: bool = False,
) -> int:
    """fq_make_stage_channels."""
    made: int = kernel.value(
        "select fq_make_stage_channels(%(queue)s, %(stage)s, %(attempts)s, %(limit)s,  p_policy => %(policy)s)",
        stage=stage,
        attempts=list(attempts or (1,)),
        limit=limit,
        policy=policy_json(max_backlog=max_backlog, on_full="drop" if drop else "raise"),
    )
    return made


def merge(
    kernel: Kernel,
    stage: str,
    messages: int,
    *attempts: int,
    job: str = "job",
    batch: int | None = None,
    source: str | None = None,
    on: str = "skip",
    rejected: int = 0,
) -> Merged:
    """fq_merge."""
    (row,) = kernel.rows(
        "select * from fq_merge(%(queue)s, %(job)s, %(stage)s, %(attempts)s, %(messages)s, %(batch)s::bigint,"
        " %(source)s::text, %(on)s, %(rejected)s)",
        job=job,
        stage=stage,
        attempts=list(attempts or (1,)),
        messages=messages,
        batch=batch,
        source=source,
        on=on,
        rejected=rejected,
    )
    return Merged(**row)


def staged(kernel: Kernel, *channels: str, max_backlog: int | None = None, drop: bool = False, **columns: Any) -> str:
    """A stage with one copy, its channels made."""
    stage = make_stage(kernel)
    copy(kernel, stage, *channels, **columns)
    make_channels(kernel, stage, max_backlog=max_backlog, drop=drop)
    return stage


def load(kernel: Kernel, *channels: str, job: str = "job", on: str = "skip", **columns: Any) -> Merged:
    """All of it: one copy, merged."""
    return merge(kernel, staged(kernel, *channels, **columns), len(channels), job=job, on=on)


def messages(kernel: Kernel) -> list[tuple[str, str]]:
    """Channel and content of each message, in order."""
    rows = kernel.rows(
        "select c.name, convert_from(m.content, 'UTF8') as content"
        " from fq_message m join fq_channel c on c.id = m.channel_id order by 1, 2"
    )
    return [(row["name"], row["content"]) for row in rows]
