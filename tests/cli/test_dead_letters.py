from datetime import timedelta

import pytest
from sqlalchemy import Engine

from sqlalchemy_fairqueue import BytesCodec, Queue
from tests.cli.conftest import Cli
from tests.cli.messages import QUEUE, bury, enqueue, lease
from tests.fixtures.database import Database


def test_no_dead_letters(cli: Cli, engine: Engine) -> None:
    """A queue without dead letters is no error: the command says that there are none, and of which kind."""
    enqueue(engine, "a")

    assert cli("dead", "list").out == "queue 'documents' has no dead letters\n"
    assert cli("dead", "list", "--json").document == {"queue": "documents", "dead_letters": [], "more": False}
    assert cli("dead", "redrive", "--all", "--yes").out == "queue 'documents' has no dead letters\n"
    lease(engine)
    [last] = bury(engine, "b")
    no_print = "queue 'documents' has no dead letters in channel 'a' of kind 'print'\n"
    for command in (["list"], ["redrive", "--yes"]):
        assert cli("dead", *command, "--channel", "a", "--kind", "print").out == no_print
    assert cli("dead", "list", "--after", str(last)).out == f"queue 'documents' has no dead letters after {last}\n"


def test_list(cli: Cli, engine: Engine) -> None:
    """Dead letters are listed, the oldest death first, with what killed them, which a pipe gets whole; channel, kind,
    error and time restrict.
    """
    first, second = bury(engine, "a", "b", ordering_key="k")
    [third] = bury(engine, "a", kind="print")

    found = cli("dead", "list")
    assert [[*row[:3], row[4]] for row in found.rows()[1:]] == [
        [str(first), "a", "parse", "1"], [str(second), "b", "parse", "1"], [str(third), "a", "print", "1"],
    ]  # fmt: skip
    assert found.rows()[1][3] == "k"
    assert found.rows()[1][6:] == ["cannot be read", "ValueError: no such page"]

    def ids(*words: str) -> list[int]:
        return [one["message_id"] for one in cli("dead", "list", "--json", *words).document["dead_letters"]]

    assert ids("--channel", "a") == [first, third]
    assert ids("--kind", "print") == [third]
    assert ids("--channel", "b", "--kind", "print") == []
    assert ids("--since", "1h", "--limit", "99999") == [first, second, third]
    for none in (["--until", "1h"], ["--error", "none of it"]):
        assert cli("dead", "list", *none).out == "queue 'documents' has no such dead letters\n"
    error = f"ValueError: no page of {'x' * 100}"
    enqueue(engine, "a")
    QUEUE.bury(engine, lease(engine), error=error)
    assert error in cli("dead", "list").out


def test_pages(cli: Cli, engine: Engine) -> None:
    """A page says whether there are more and how to get them."""
    ids = bury(engine, *"abcde")

    first = cli("dead", "list", "--limit", "2", "--json").document
    assert first["more"]
    rest = cli("dead", "list", "--after", str(ids[1]), "--json").document
    assert [one["message_id"] for one in first["dead_letters"] + rest["dead_letters"]] == ids
    assert not rest["more"]
    assert cli("dead", "list", "--limit", "2").out.splitlines()[-1] == f"there are more: --after {ids[1]}"


def test_show(cli: Cli, engine: Engine) -> None:
    """``dead show`` shows a whole dead letter, payload decoded and traceback line by line, and fails for another id."""
    [message_id] = bury(engine, "köln", payload={"page": 7}, headers={"trace": "abc"}, key="k1", ordering_key="o1")

    found = cli("dead", "show", str(message_id))
    assert ["ordering key", "o1"] in found.rows()
    assert ["payload", '{"page": 7}'] in found.rows()
    assert ["attempts", "1 of at most 20, handed out 1 time"] in found.rows()
    assert found.out.splitlines()[-2:] == ["Traceback ...", "ValueError: no such page"]
    document = cli("dead", "show", str(message_id), "--json").document
    expected = {
        "message_id": message_id, "queue": "documents", "channel": "köln", "kind": "parse", "key": "k1",
        "ordering_key": "o1", "attempts": 1,
        "max_attempts": 20, "deliveries": 1, "reason": "cannot be read", "payload": {"page": 7},
        "headers": {"trace": "abc"}, "error": "Traceback ...\nValueError: no such page",
    }  # fmt: skip
    assert {name: document[name] for name in expected} == expected
    missing = cli("dead", "show", "77", "--json")
    assert (missing.status, missing.error["kind"]) == (1, "not_found")
    assert "message 77 is no dead letter of queue 'documents'" in missing.err


def test_a_payload_that_is_no_json(cli: Cli, engine: Engine) -> None:
    """A payload that cannot be decoded is shown as bytes, and the rest is shown all the same."""
    [message_id] = bury(engine, "a", queue=Queue("documents", codec=BytesCodec()), payload=b"\xff\x00")

    assert r"b'\xff\x00'" in cli("dead", "show", str(message_id)).out
    document = cli("dead", "show", str(message_id), "--json").document
    assert (document["payload"], document["content_base64"]) == (None, "/wA=")


def test_redrive_named_ones(cli: Cli, engine: Engine) -> None:
    """Named dead letters go back without a question; what is not there is told, with status 1."""
    first, second, third = bury(engine, "a", "b", "c")

    assert cli("dead", "redrive", str(first), str(second)).out == "2 redriven\n"
    mixed = cli("dead", "redrive", str(third), str(first), "--json")
    assert mixed.status == 1
    assert mixed.document == {
        "queue": "documents", "redriven": 1, "duplicate": 0, "missing": 1,
        "not_redriven": [{"message_id": first, "outcome": "missing"}],
    }  # fmt: skip
    assert [delivery.message_id for delivery in lease(engine)] == [first, second, third]
    assert f"1 not among the dead letters of queue 'documents': {first}" in cli("dead", "redrive", str(first)).out


def test_redrive_in_bulk(cli: Cli, engine: Engine, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many go back page by page; those that must stay dead do not stand in the way of the others."""
    monkeypatch.setattr("sqlalchemy_fairqueue.cli.dead_letters._PAGE", 50)
    bury(engine, "b", kind="print")
    ids = bury(engine, *["a"] * 70)
    database.execute(f"update fq_dead_letter set key = 'k' where message_id between {ids[0]} and {ids[59]}")
    enqueue(engine, "a", key="k")

    found = cli("dead", "redrive", "--kind", "parse", "--yes", "--json")

    assert found.status == 0
    outcomes = {name: found.document[name] for name in ("redriven", "duplicate", "missing")}
    assert outcomes == {"redriven": 10, "duplicate": 60, "missing": 0}
    assert len(found.document["not_redriven"]) == 60
    assert "60 left as they are: another message holds their key" in cli("dead", "redrive", "--all", "--yes").out


def test_bulk_asks(cli: Cli, engine: Engine) -> None:
    """Without ids redrive asks; anything but yes changes nothing, with status 1."""
    bury(engine, "a", "a")
    for answer, redriven in (("n\n", 0), ("\n", 0), ("", 0), ("y\n", 2)):
        found = cli("dead", "redrive", "--channel", "a", answer=answer)
        assert "redrive 2 dead letters of queue 'documents', channel 'a'? [y/N]" in found.err
        assert len(lease(engine)) == redriven
        assert (found.status, "nothing was changed" in found.err) == ((0, False) if redriven else (1, True))


def test_groups(cli: Cli, engine: Engine) -> None:
    """Dead letters are counted by what they died of, of the newest so many."""
    assert cli("dead", "groups", "--queue", "documents").status == 1
    ids = bury(engine, "a", "b", "b", kind="parse")
    others = bury(engine, "a", kind="print")

    [parse, print_] = cli("dead", "groups", "--json").document["groups"]
    assert (parse["letters"], parse["channels"], parse["kind"]) == (3, 2, "parse")
    assert parse["error"] == "ValueError: no such page"
    assert sorted(parse["message_ids"]) == ids
    assert (print_["letters"], print_["message_ids"]) == (1, others)
    assert cli("dead", "groups").rows()[1][:3] == ["3", "2", "parse"]
    assert [one["kind"] for one in cli("dead", "groups", "--limit", "1", "--json").document["groups"]] == ["print"]


def test_redrive_by_error_and_age(cli: Cli, engine: Engine, database: Database) -> None:
    """Dead letters are redriven by a text in the error and by when they died, the earliest first, up to a limit."""
    old, first, second = bury(engine, "a", "a", "a")
    hour = timedelta(hours=3) // timedelta(microseconds=1)
    database.execute(f"update fq_dead_letter set died_at = died_at - {hour} where message_id = {old}")
    words = ["dead", "redrive", "--error", "no such page", "--since", "2h", "--yes", "--json"]

    assert "has no such dead letters" in cli("dead", "redrive", "--error", "no such text", "--yes").out
    assert cli(*words, "--limit", "1").document["redriven"] == 1
    assert [one.message_id for one in lease(engine)] == [first]
    assert cli(*words).document["redriven"] == 1
    assert [one.message_id for one in lease(engine)] == [second]
    assert [one.message_id for one in QUEUE.dead_letters.list(engine)] == [old]


def test_redrive_at_a_pace(cli: Cli, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a rate no more are redriven in a second than it says."""
    bury(engine, *["a"] * 5)
    waits: list[tuple[float, int]] = []
    monkeypatch.setattr(
        "sqlalchemy_fairqueue.cli.dead_letters.sleep", lambda seconds: waits.append((seconds, QUEUE.stats(engine).dead))
    )

    assert cli("dead", "redrive", "--all", "--rate", "2/s", "--yes").out == "5 redriven\n"
    assert waits == [(1.0, 3), (1.0, 1)]
    assert cli("dead", "redrive", "--all", "--rate", "soon", "--yes").status == 2
    refused = cli("dead", "redrive", "--all", "--rate", "100/s of cost", "--yes")
    assert (refused.status, "--rate is 100/s of cost" in refused.err) == (2, True)


def test_all_must_be_said(cli: Cli, engine: Engine) -> None:
    """No ids and no restriction is no way to say all; ids and a restriction contradict; nobody is there to say yes."""
    [message_id] = bury(engine, "a")
    for command in ("redrive", "purge"):
        assert "give ids, --channel, --kind or --all" in cli("dead", command, "--yes").err
        assert cli("dead", command, str(message_id), "--all", "--yes").status == 2
        assert cli("dead", command, str(message_id), "--kind", "parse", "--yes").status == 2
        found = cli("dead", command, "--all", "--json")
        assert (found.status, found.error["kind"], "give --yes" in found.err) == (2, "usage", True)
    assert QUEUE.stats(engine).dead == 1


def test_purge(cli: Cli, engine: Engine, database: Database) -> None:
    """Dead letters are deleted by id, channel, kind or age, and all of them only if that is said."""
    first, second, third, fourth = bury(engine, "a", "b", "c", "c")
    old = timedelta(days=40) // timedelta(microseconds=1)
    database.execute(f"update fq_dead_letter set died_at = died_at - {old} where message_id = {second}")

    assert cli("dead", "purge", str(first), "--yes", "--json").document == {"queue": "documents", "purged": 1}
    assert cli("dead", "purge", str(first), "--yes").status == 1
    assert cli("dead", "purge", "--older-than", "30d", "--yes").out == "1 dead letter of queue 'documents' deleted\n"
    assert {one.message_id for one in QUEUE.dead_letters.list(engine)} == {third, fourth}
    declined = cli("dead", "purge", "--all", "--json", answer="n\n")
    assert (declined.status, declined.error["kind"]) == (1, "declined")
    question = "delete all dead letters of queue 'documents', channel 'c' for good? [y/N]"
    purged = cli("dead", "purge", "--channel", "c", answer="y\n")
    assert question in purged.err
    assert purged.out == "2 dead letters of queue 'documents' deleted\n"
