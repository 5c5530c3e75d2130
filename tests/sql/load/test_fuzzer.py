"""Fuzzer of loads: whatever a loader can copy into a stage is merged, and delays nobody's message.

FAIRQUEUE_FUZZ_ROWS is the number of rows, FAIRQUEUE_FUZZ_SEED the seed.
"""

import os
from dataclasses import asdict

import psycopg
from psycopg.types.json import set_json_loads

from tests.queue.row_grammar import Grammar, Row
from tests.sql.client import Kernel
from tests.sql.load.loads import make_channels, make_stage, merge

_ROWS = int(os.environ.get("FAIRQUEUE_FUZZ_ROWS", "60"))
_SEED = int(os.environ.get("FAIRQUEUE_FUZZ_SEED", "1"))
_ROUND = 20


def _copied(kernel: Kernel, stage: str, row: Row) -> bool:
    """Copy a row into the stage; whether it was taken. A refusal is a check of the stage or the parser of a value."""
    values = asdict(row) | {"attempt": 1}
    del values["on_duplicate"]
    columns, places = ", ".join(values), ", ".join(f"%({name})s" for name in values)
    try:
        kernel.rows(f"insert into public_stages.{stage} ({columns}) values ({places})", **values)
    except (psycopg.DataError, psycopg.IntegrityError, psycopg.errors.ProgramLimitExceeded):
        return False
    except (UnicodeEncodeError, psycopg.errors.StatementTooComplex):
        return False
    return True


def test_no_loaded_row_stops_a_queue(kernel: Kernel) -> None:
    """Each stage is merged whole; the next dequeue delivers a message of somebody else, and in the end all are out."""
    set_json_loads(lambda text: text, kernel.connection)  # headers may have numbers that Python refuses to read
    grammar = Grammar(_SEED)
    taken = created = delivered = 0
    for number in range(0, _ROWS, _ROUND):
        stage = make_stage(kernel)
        rows = sum(_copied(kernel, stage, grammar.row()) for _ in range(_ROUND))
        while make_channels(kernel, stage):
            pass
        on = grammar.random.choice(("skip", "replace"))
        merged = merge(kernel, stage, rows, job=f"job {number}", on=on)
        assert merged.created + merged.replaced + merged.duplicates == rows, f"seed {_SEED}, row {number}: {merged}"
        [bystander] = kernel.enqueue("bystander")
        batch = kernel.dequeue(1000).hands
        assert bystander.message_id in {one.id for one in batch}, f"seed {_SEED}, rows up to {number + _ROUND}"
        kernel.complete(*batch)
        taken += rows
        created += merged.created
        delivered += len(batch) - 1
    assert 0.2 * _ROWS < taken < 0.9 * _ROWS, "the grammar makes rows of both kinds"
    assert delivered + kernel.value("select count(*) from fq_message") == created
    assert kernel.value("select count(*) from fq_channel_state where problem is not null") == 0
