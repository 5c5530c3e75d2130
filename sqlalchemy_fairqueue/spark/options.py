"""Options of the data source, which Spark passes as text. Spark's driver makes a checked, frozen dataclass of them.

The name of an option is the name of its field in camel case. This module must not open connections.
"""

from __future__ import annotations

import difflib
import json
import re
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from sqlalchemy_fairqueue.database.messages import followup_values
from sqlalchemy_fairqueue.errors import InvalidArgument, PayloadError
from sqlalchemy_fairqueue.queue import Queue
from sqlalchemy_fairqueue.spark.errors import BadOption
from sqlalchemy_fairqueue.spark.reading.offsets import EARLIEST, LATEST, read_offset
from sqlalchemy_fairqueue.times import instant_microseconds, parsed_duration
from sqlalchemy_fairqueue.values.checks import check_count, check_name
from sqlalchemy_fairqueue.values.fields import Rate
from sqlalchemy_fairqueue.values.messages import Enqueue
from sqlalchemy_fairqueue.values.policies import POLICY, ChannelPolicy, PolicyFields

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from _typeshed import DataclassInstance

    OptionsT = TypeVar("OptionsT", bound=DataclassInstance)

_COPY = "option."
_MOST = 2**31 - 1
_ATTEMPTS = 20
_BOOLEANS = {"true": True, "false": False}


def _parsed_message(text: str) -> Enqueue:
    try:
        given = json.loads(text)
        if isinstance(given, dict) and isinstance(given.get("delay"), str):
            given["delay"] = parsed_duration(given["delay"])
        return Enqueue(**given)
    except json.JSONDecodeError:
        # The text may hold a payload, which is not shown.
        raise ValueError('its value is no JSON; give a message like {"channel": "a", "payload": 1}') from None
    except TypeError as error:
        raise ValueError(f"its value is no message: {error}; give a channel, a payload and fields of Enqueue") from None


_PARSED: dict[Any, Callable[[str], Any]] = {timedelta: parsed_duration, Rate: Rate.parse, Enqueue: _parsed_message}
_TYPES = {
    str: "text",
    int: "a whole number",
    bool: "True or False",
    timedelta: "a timedelta, or text like 36h",
    Rate: "a Rate, or text like 50/s",
    Enqueue: 'an Enqueue, or JSON like {"channel": "a", "payload": 1}',
}


# Without slots, so that a class of options may also inherit the fields of another class.
@dataclass(frozen=True, kw_only=True)
class TargetOptions:
    """Options of the installation, for reading and writing. Exactly one of *dsn* and *dsn_env* is required.

    Attributes:
        dsn: ``postgresql://...`` or ``key=value`` words of libpq. The dsn is never shown.
        dsn_env: The environment variable with the dsn on driver and executors. Query plans show its name, not the dsn.
        schema: The schema of the installation, by default the connection's current schema.
    """

    dsn: str | None = field(default=None, repr=False)
    dsn_env: str | None = None
    schema: str | None = None

    def __post_init__(self) -> None:
        read_fields(self)
        if (self.dsn is None) == (self.dsn_env is None):
            raise BadOption(
                "give one of the options dsn and dsnEnv: the first holds the dsn, the second names a variable"
            )


def read_options(kind: type[OptionsT], given: Mapping[str, str], ignored: Collection[str] = ()) -> OptionsT:
    """Return the options as a value of *kind*, a frozen dataclass. Names may have any case; *ignored* are left out.

    *kind* parses text by the field's type: str, int, bool (``true``, ``false``), timedelta (``36h``), Rate (``50/s``),
    Enqueue (JSON), tuple of str (separated by commas), Literal (one of its words). A field without default is required.

    Raises:
        BadOption: An option is unknown, missing, or cannot be parsed. The value of dsn is never shown.
    """
    known = {option_name(one.name): one.name for one in fields(kind)}
    names = {name.lower(): name for name in known}
    values: dict[str, Any] = {}
    _refuse_table(given)
    passed = {name.lower() for name in ignored}
    for name, text in given.items():
        if name.lower() in passed:
            continue
        if name.lower() not in names:
            raise BadOption(unknown("option", name, sorted(known)))
        values[known[names[name.lower()]]] = text
    missing = [
        option_name(one.name)
        for one in fields(kind)
        if one.name not in values and one.default is one.default_factory is MISSING
    ]
    if missing:
        raise BadOption(f"the data source was not given {', '.join(missing)}; add .option({missing[0]!r}, ...)")
    return kind(**values)


def _refuse_table(given: Mapping[str, str]) -> None:
    """Raise BadOption for a table of Spark's catalog. Only such a table has options with names like ``option.NAME``."""
    names = {name.lower() for name in given}
    if any(name.startswith(_COPY) and name.removeprefix(_COPY) in names for name in names):
        raise BadOption(
            "fairqueue cannot be a table of Spark's catalog: Spark gives a Python data source no option of a table "
            "when it is read; write create temporary view ... using fairqueue options (...)"
        )


def read_fields(options: DataclassInstance) -> None:
    """Convert text in *options* to the fields' types, in ``__post_init__``. Raise BadOption if a value does not fit."""
    hints = get_type_hints(type(options))
    for one in fields(options):
        value, name, kind = getattr(options, one.name), option_name(one.name), _kind(hints[one.name])
        if isinstance(value, str):
            object.__setattr__(options, one.name, _read(value, kind, name))
        elif value is None and type(None) in get_args(hints[one.name]):
            continue
        elif (
            get_origin(kind) is Literal
            or not isinstance(value, get_origin(kind) or kind)
            or (kind is int and isinstance(value, bool))
        ):
            shown = f"{value!r:.80}" if one.repr else f"a {type(value).__name__}"
            wanted = _TYPES.get(kind) or f"one of {', '.join(get_args(kind))}"
            raise BadOption(f"option {name} is {shown}; give {wanted}")


def option_name(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def unknown(what: str, given: str, names: Collection[str], others: str = "") -> str:
    lower = {name.lower(): name for name in names}
    close = difflib.get_close_matches(given.lower(), lower, n=1)
    meant = f"did you mean {lower[close[0]]}?" if close else f"the {what}s are {', '.join(names)}{others}"
    return f"{what} {given!r} is unknown; {meant}"


def _kind(hint: Any) -> Any:
    others = [one for one in get_args(hint) if one is not type(None)]
    return others[0] if type(None) in get_args(hint) else hint


def _read(text: str, kind: Any, name: str) -> Any:
    if get_origin(kind) is Literal:
        return _one_of(text, get_args(kind), name)
    if get_origin(kind) is tuple:
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if kind is bool:
        return _BOOLEANS[_one_of(text, tuple(_BOOLEANS), name)]
    if kind is int:
        try:
            return int(text)
        except ValueError:
            raise BadOption(f"option {name} is {text!r:.80}; give a whole number") from None
    if kind in _PARSED:
        try:
            return _PARSED[kind](text)
        except ValueError as error:
            raise BadOption(f"option {name}: {error}") from None
    if not text:
        raise BadOption(f"option {name} is empty; leave it out, or give it a value")
    return text


def _one_of(text: str, words: tuple[str, ...], name: str) -> str:
    for word in words:
        if text.strip().lower() == word.lower():
            return word
    raise BadOption(f"option {name} is {text!r:.80}; give one of {', '.join(words)}")


@contextmanager
def _named_as_options() -> Iterator[None]:
    """Convert InvalidArgument, which names an argument, to BadOption, which names the option that users have set."""
    try:
        yield
    except InvalidArgument as error:
        name, separator, problem = re.split("([: ])", str(error), maxsplit=1)
        raise BadOption(f"option {option_name(name)}{separator}{problem}") from None


# PostgreSQL allows names of 63 characters. One publication has the name of the slot with ``_history`` appended.
_SLOT_NAME = re.compile(r"[a-z0-9_]{1,55}")


def check_slot_name(slot: str) -> None:
    if not _SLOT_NAME.fullmatch(slot):
        raise BadOption(f"option slot is {slot!r:.80}; give up to 55 of the characters a-z, 0-9 and _")


_MOST_PARTITIONS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ReadOptions(TargetOptions):
    """Options of a read. The tables of :doc:`/spark` say what each option is for.

    Attributes:
        since: Earliest end of an attempt (ISO 8601, UTC by default), inclusive; *until* is exclusive.
        starting_offsets: The offset after which to begin, as JSON; or ``earliest``; or, for streams, ``latest``.
        ending_offsets: Not for streams. The offset up to which to read, as JSON, or ``latest``. A read up to ``latest``
            ends before the oldest open transaction. If only *starting_offsets* is given, ``latest`` is the default.
    """

    table: Literal["history", "messages", "channels", "dead_letters", "changes"] = "history"
    slot: str | None = None
    queue: str | None = None
    channels: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    num_partitions: int | None = None
    since: str | None = None
    until: str | None = None
    starting_offsets: str | None = None
    ending_offsets: str | None = None
    max_offsets_per_trigger: int | None = None
    fail_on_data_loss: bool = True
    accepted_origin: str | None = None

    def __post_init__(self) -> None:
        # super() without arguments does not work in a dataclass with slots: it refers to the class before it got slots.
        TargetOptions.__post_init__(self)
        with _named_as_options():
            for name, most in (("num_partitions", _MOST_PARTITIONS), ("max_offsets_per_trigger", _MOST)):
                if (value := getattr(self, name)) is not None:
                    check_count(name, value, 1, most)
        given = {
            "since": self.since,
            "until": self.until,
            "startingOffsets": self.starting_offsets,
            "endingOffsets": self.ending_offsets,
        }
        only = [name for name, value in given.items() if value is not None]
        if self.table != "history" and only:
            raise BadOption(f"option {only[0]} is for the history, and table is {self.table!r}; leave it out")
        if (self.slot is None) == self.follows_changes:
            raise BadOption(
                f"option slot is for table 'changes', which needs it, and table is {self.table!r}; "
                "give both options, or none of them"
            )
        if self.slot is not None:
            check_slot_name(self.slot)
        if self.follows_changes and self.num_partitions not in (None, 1):
            raise BadOption("option numPartitions is not for table 'changes', which one task decodes; leave it out")
        if self.finished[0] >= self.finished[1]:
            raise BadOption(f"option since {self.since!r} is not before until {self.until!r}; give an earlier instant")
        for name in ("startingOffsets", "endingOffsets"):
            text = given[name]
            if text is not None and text not in (EARLIEST, LATEST):
                read_offset(text, f"option {name}", f"{EARLIEST}, {LATEST}, or ")

    @property
    def finished(self) -> tuple[int, int]:
        """The range of ``finished_at`` in microseconds, its end excluded."""
        return _instant("since", self.since, -(2**63)), _instant("until", self.until, 2**63 - 1)

    @property
    def follows_changes(self) -> bool:
        return self.table == "changes"

    @property
    def is_incremental(self) -> bool:
        return self.starting_offsets is not None or self.ending_offsets is not None

    def for_batch(self) -> ReadOptions:
        if self.follows_changes:
            raise BadOption("table 'changes' can only be followed as a stream; use spark.readStream")
        if self.max_offsets_per_trigger is not None:
            raise BadOption("option maxOffsetsPerTrigger is for streams; leave it out, or use spark.readStream")
        if self.starting_offsets == LATEST or self.ending_offsets == EARLIEST:
            raise BadOption("startingOffsets latest or endingOffsets earliest leave nothing to read; give offsets")
        return self

    def for_stream(self) -> ReadOptions:
        if self.table not in ("history", "changes"):
            raise BadOption(f"table {self.table!r} cannot be followed as a stream; use spark.read, or the history")
        for name, value in (("endingOffsets", self.ending_offsets), ("since", self.since), ("until", self.until)):
            if value is not None:
                raise BadOption(f"option {name} is for reading once; leave it out, or use spark.read")
        return self


def _instant(name: str, text: str | None, default: int) -> int:
    if text is None:
        return default
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise BadOption(f"option {name} is {text!r:.80}; give an instant like 2026-11-21T14:30:00Z") from None
    return instant_microseconds(found if found.tzinfo else found.replace(tzinfo=UTC))


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions(PolicyFields, TargetOptions):
    """Options of a write. The table of :doc:`/spark` says what each option is for.

    The fields of :class:`~sqlalchemy_fairqueue.ChannelPolicy` are options too: the policy of channels that the load
    creates. It counts only if the database has neither defaults nor a default plan for the queue. The load does not
    know your ``Queue(defaults=...)``, so give the same policy here.

    Attributes:
        job_id: The id of the load: a second load with the same id enqueues nothing. Without an id, a repeated load
            enqueues all rows again. A stream needs an id.
        then: The follow-up of each group in the frame's column ``group``. Give an Enqueue, or its fields as JSON:
            ``{"channel": "a", "payload": 1, "kind": "report"}``.
        on_failure: The follow-up, instead of *then*, if a member failed or was cancelled. By default, *then* follows.
    """

    queue: str
    job_id: str | None = None
    kind: str = "default"
    max_attempts: int | None = None
    payload_format: Literal["value", "json"] = "value"
    on_duplicate: Literal["skip", "raise", "replace"] = "skip"
    bad_rows: Literal["fail", "reject"] = "fail"
    rejects_path: str | None = None
    staging_rows: int = 10_000
    staging_ttl: timedelta = timedelta(days=1)
    then: Enqueue | None = field(default=None, repr=False)
    on_failure: Enqueue | None = field(default=None, repr=False)

    @property
    def policy(self) -> ChannelPolicy:
        values: Any = {name: getattr(self, name) for name in POLICY}
        return ChannelPolicy(**values)

    def followups(self) -> dict[str, Any]:
        """Return the follow-ups of each group, as arguments of ``fq_make_load_groups``, or raise InvalidArgument."""
        queue = Queue(self.queue, max_attempts=self.max_attempts or _ATTEMPTS)
        made = []
        for name in ("then", "on_failure"):
            try:
                made.append(queue._followup(name, getattr(self, name)))  # noqa: SLF001 - what queue.group does with it
            except PayloadError as error:
                raise InvalidArgument(f"{name}: {error}") from None
        found = [one for one in made if one is not None]
        return {"on_failures": [one is made[1] for one in found] or None, **followup_values(found)}

    def __post_init__(self) -> None:
        # The base class is named, for the same reason as in ReadOptions.
        TargetOptions.__post_init__(self)
        with _named_as_options():
            for name in ("queue", "kind", "job_id"):
                if getattr(self, name) is not None:
                    check_name(name, getattr(self, name))
            if self.max_attempts is not None:
                check_count("max_attempts", self.max_attempts, 1, _MOST)
            check_count("staging_rows", self.staging_rows, 1, _MOST)
            _ = self.policy
            self.followups()
        if self.staging_ttl < timedelta():
            raise BadOption(f"option stagingTtl is {self.staging_ttl}; give a duration from 0 on")
        if (self.bad_rows == "reject") != (self.rejects_path is not None):
            raise BadOption("badRows=reject and rejectsPath go together: give both, or neither")
