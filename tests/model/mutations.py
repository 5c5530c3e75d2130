"""Small mistakes in the functions of the schema, which the machine must notice."""

from typing import NamedTuple

from sqlalchemy_fairqueue.sql.files import NEEDED_VERSION, functions
from sqlalchemy_fairqueue.sql.schema import in_schema
from tests.model.groups import GroupsMachine
from tests.model.limits import LimitsMachine
from tests.model.machine import FairQueueMachine
from tests.model.ordering import OrderingMachine


class Mutation(NamedTuple):
    """A small mistake in a function. ``slow``: many programs must run before one stumbles over it."""

    function: str
    right: str
    wrong: str
    slow: bool = False

    def sql(self) -> str:
        """What puts the mistake in. A text that the function does not have any more would prove nothing."""
        text = functions(NEEDED_VERSION)[self.function]
        assert self.right in text, f"{self.function} has no text {self.right!r}"
        assert self.right != self.wrong
        broken = text.replace(self.right, self.wrong).replace("create function", "create or replace function")
        return in_schema(broken, "public")


_OF_ALL = {
    # What is taken.
    "a message is taken before it is due": Mutation(
        "fq_cut_batch", "      and r.dequeue_at <= p_now\n      and (\n", "      and (\n"
    ),
    "the head goes past a locked message": Mutation(
        "fq_find_heads", "    limit 1\n  ) h on true", "    limit 1\n    for no key update skip locked\n  ) h on true"
    ),
    "a returned message lowers no head": Mutation(
        "fq_hear_many", "(t.dequeue_at, t.message_id) <", "(t.dequeue_at, t.message_id) >"
    ),
    "a batch is cut after what is too much": Mutation(
        "fq_cut_batch", "(p.bytes <= p_bytes", "(p.bytes - p.size <= p_bytes"
    ),
    "a channel that gives nothing is put off": Mutation(
        "fq_cut_batch",
        "and (r.dequeue_at <= p_now) is not true",
        "and r.ord <> all (coalesce((select array_agg(g.ord) from given g), '{}'))",
    ),
    "the limit is not read": Mutation("fq_choose", "p_limit, s.max_concurrency - s.current_concurrency,", "p_limit,"),
    "an old hand-out completes": Mutation("fq_complete_many", "and m.deliveries = u.deliveries", "", slow=True),
    # Floors of signals and of what is due.
    "an open transaction is forgotten when the floor of the signals rises past it": Mutation(
        "fq_hear_signals", "x(xid)\n      where x.xid < below", "x(xid)\n      where false"
    ),
    "what a locked channel was told is put back without its message": Mutation("fq_put_back", "t.least[1]", "null"),
    "a due channel is forgotten": Mutation("fq_move_due", "r.due_at <= p_now", "r.due_at < 0"),
    "who becomes ready beside a channel that stands still is hidden by the floor": Mutation(
        "fq_attend", "greatest(v_first.tag, fairqueue", "greatest(fairqueue", slow=True
    ),
    # Costs.
    "a cost moves no tag": Mutation(
        "fq_charge", "o.tag_rest, t.charge::bigint, o.weight) as tag", "o.tag_rest, 0, o.weight) as tag"
    ),
    "a batch is filled channel by channel": Mutation("fq_cut_batch", "r.start, r.rank, r.ord", "r.ord, r.rank"),
    # Priorities.
    "a retry forgets the priority": Mutation("fq_return_messages", "    where r.is_promotable\n", "    where false\n"),
    "a scheduled message keeps its position": Mutation(
        "fq_promote", "(m.channel_id, m.dequeue_at, m.priority)", "(m.channel_id, m.dequeue_at, null::integer)"
    ),
    "who is promoted is told to nobody": Mutation("fq_promote", "    where p.lease_id is null\n", "    where false\n"),
    "a priority begins before its time": Mutation("fq_position", "when p_aging is null then", "when true then"),
    "a letter forgets its priority": Mutation("fq_bury_messages", "b.key, b.priority,", "b.key, null,"),
    "a replaced message keeps its priority": Mutation(
        "fq_add_message", "priority = p_priority,\n", "priority = m.priority,\n"
    ),
    # Limits, pauses and purges.
    "the queue's limit is not read": Mutation(
        "fq_own_room", "p_wanted, p_state.max_concurrency - p_state.current_concurrency,", "p_wanted,"
    ),
    "a completion frees a slot of less cost": Mutation(
        "fq_complete_many", "sum((d.slots >> 1) * d.cost)", "sum(d.slots >> 1)"
    ),
    "what is out is not marked": Mutation("fq_give_slots", "set slots = m.slots | p_slot", "set slots = m.slots"),
    "the queue's slots are not freed": Mutation(
        "fq_attend", "state.current_concurrency - h.freed", "state.current_concurrency"
    ),
    "a paused channel is scheduled": Mutation("fq_opens_at", "num_nonnulls(p_paused_at) = 0 and ", ""),
    "a resumed channel stands nowhere": Mutation("fq_pause", "where v_head.head_message_id is not null", "where false"),
    "a backlog never grows": Mutation("fq_hear_many", "backlog = s.backlog + t.added", "backlog = s.backlog"),
    "a withdrawn message stays": Mutation("fq_return_messages", "      and h.cancelled\n", "      and false\n"),
    "a purge forgets what is locked": Mutation(
        "fq_purge_channel", "where x.channel_id = v_channel_id\n          and x.lease_id is null", "where false"
    ),
    "a purge counts nothing": Mutation("fq_purge_channel", "    backlog = s.backlog - v_deleted,\n", ""),
    "a purge waits for what is locked": Mutation(
        "fq_purge_channel", "    for update skip locked", "    for update", slow=True
    ),
    # Keys.
    "a replaced message keeps its attempts": Mutation("fq_add_message", "          attempts = 0,\n", "", slow=True),
    "a replaced message keeps its turn order": Mutation("fq_add_message", "dequeue_at = p_at,\n", ""),
    "a replaced message is told to nobody": Mutation(
        "fq_enqueue", "outcome in ('created', 'replaced', 'dropped') then", "outcome in ('created', 'dropped') then"
    ),
    "one of several that are replaced is told to nobody": Mutation(
        "fq_enqueue_many", "u.created or u.outcome in ('replaced', 'dropped')", "u.created or u.outcome = 'dropped'"
    ),
    "a message that is out is rewritten": Mutation(
        "fq_add_message", "elsif v_holder is not null and v_lease_id is null then", "elsif v_holder is not null then"
    ),
    "a replaced message counts twice": Mutation("fq_enqueue", "created::integer", "(outcome <> 'dropped')::integer"),
    "one of several that are replaced counts twice": Mutation(
        "fq_enqueue_many", "(where u.created) as added", "(where u.outcome <> 'dropped') as added"
    ),
    "a duplicate is told before what replaces": Mutation(
        "fq_enqueue_in_order",
        "not v_is_late and channel_ids[i - 1] = channel_ids[i] and v_later[i - 1] = r.key",
        "false",
        slow=True,
    ),
    "a letter whose key stands is lost": Mutation(
        "fq_redrive", "d.message_id = any (v_back)", "d.message_id = any (v_ids)"
    ),
    "what is redriven is not counted": Mutation("fq_redrive", "count(*) as added", "0 as added"),
    # Bounds and policies.
    "what was dropped is not counted": Mutation("fq_enqueue", "(outcome = 'dropped')::integer", "0"),
    "one of several that was dropped is not counted": Mutation(
        "fq_enqueue_many", "count(*) filter (where not u.created and u.outcome = 'dropped') as dropped", "0 as dropped"
    ),
    "what was dropped is not heard": Mutation("fq_hear_many", "dropped = s.dropped + t.dropped", "dropped = s.dropped"),
    "what nobody has heard of takes no room": Mutation(
        "fq_channel_room", "and g.bounded\n              and g.id > n.heard_id", "and false"
    ),
    "no signal takes room": Mutation("fq_enqueue", "created and v_state.max_backlog is not null", "false"),
    "no signal of several messages takes room": Mutation(
        "fq_enqueue_many", "t.added > 0 and t.channel_id = any (v_added.bounded_ids)", "false"
    ),
    "a call takes no room": Mutation(
        "fq_enqueue_in_order", "        v_room.room := v_room.room - created[i]::integer;\n", ""
    ),
    "a channel hears what was not told": Mutation(
        "fq_hear_many", "heard_id = greatest(s.heard_id, t.last_id)", "heard_id = t.last_id + 1"
    ),
    "a new channel has no bound": Mutation(
        "fq_make_channels", "s.*, v_policy) as state", "s.*, v_policy - 'max_backlog') as state"
    ),
    "a new channel has no policy": Mutation(
        "fq_make_channels", "  where q.name = p_queue;", "  where false;", slow=True
    ),
    "a limit of the queue is a policy": Mutation(
        "fq_make_channels", "(n.policy, q.defaults), n.name", "(n.policy, q.defaults, '{}'), n.name", slow=True
    ),
    "a policy is none": Mutation(
        "fq_set_queue", "  set defaults = v_new.defaults", "  set defaults = q.defaults", slow=True
    ),
    "a bound counts what is to come": Mutation(
        "fq_configure_channel", "select coalesce(sum(g.added), 0)", "select coalesce(sum(0), 0)"
    ),
    "a change forgets the other fields": Mutation(
        "fq_configure_channel", "(to_jsonb(v_state) || v_base)::jsonb, v_changes,", "v_base, v_changes,"
    ),
    "a bound is never lifted": Mutation(
        "fq_write_policies", "= w.max_backlog", "= coalesce(w.max_backlog, s.max_backlog)", slow=True
    ),
    # Roles.
    "the channels of a grant are not read": Mutation(
        "fq_check_grant", "where (n.name = any (v_covered)) is not true", "where false"
    ),
    "the queues of a grant are not read": Mutation(
        "fq_check_grant", "(g.queues is null or p_queue = any (g.queues)) is true and g.channels", "g.channels"
    ),
    "a grant of another kind bounds a completion": Mutation(
        "fq_complete", "array['consumer']", "array['operator', 'loader']"
    ),
    "a cancel asks for no channel": Mutation(
        "fq_check_message_grant", "      where m.id = any (p_ids)\n", "      where false\n"
    ),
    "one good channel of several is enough": Mutation(
        "fq_enqueue", "coalesce(p_channels, '{}'", "coalesce(p_channels[:1], '{}'", slow=True
    ),
    # Bad rows.
    "a good message is set aside": Mutation(
        "fq_set_channel_aside",
        "fairqueue.fq_try_messages(array[v_row]::tid[], array[message_id]::bigint[]);",
        "'it is a suspect';",
    ),
    "what becomes a letter stays in the backlog": Mutation(
        "fq_set_message_aside", "(p_queue, v_message.channel_id, -1, true)", "(p_queue, v_message.channel_id, 0, true)"
    ),
    "a channel that somebody holds is waited for": Mutation(
        "fq_set_channel_aside",
        "for no key update skip locked;\n  if not found",
        "for no key update;\n  if not found",
        slow=True,
    ),
    # Results.
    "what is completed after it was cancelled is a result": Mutation(
        "fq_complete_many", "fq_result_pkey do nothing", "fq_result_pkey do update set outcome = excluded.outcome"
    ),
    "what a cancel withdraws has no result": Mutation(
        "fq_cancel", "    where v_retention is not null\n", "    where false\n"
    ),
    # Quotas in cost.
    "a quota of a channel forgets what is out": Mutation(
        "fq_fit_costs", "u.before + u.cost <= s.max_cost_out - s.current_cost", "u.before + u.cost <= s.max_cost_out"
    ),
    "a rate in cost counts messages": Mutation(
        "fq_charge", "(case when o.rate_of = 'cost' then u.cost else u.got end)::bigint", "u.got::bigint"
    ),
    "a quota of the queue forgets what is out": Mutation(
        "fq_queue_room", "cost_left := v_state.max_cost_out - v_state.current_cost", "cost_left := v_state.max_cost_out"
    ),
}
_OF_LIMITS = {
    "the rate of a queue stays as it was": Mutation(
        "fq_limit_queue", "v_marked.cost,\n    rate_interval = v_new.rate_interval,\n", "v_marked.cost,\n"
    ),
    "what other queues have out takes no room in a shared limit": Mutation(
        "fq_draw_room", "else x.messages_out end", "else 0 end"
    ),
    "what is drawn does not count for the rate of a shared limit": Mutation(
        "fq_draw", "        rate_at = r.rate_at,\n", ""
    ),
    "a rate of the queue in cost counts messages": Mutation(
        "fq_report", "(case when v_state.rate_of = 'cost' then p_sight.spent else p_got end)::bigint", "p_got::bigint"
    ),
    "a rate of a shared limit in cost counts messages": Mutation(
        "fq_draw", "(case when f.rate_of = 'cost' then p_cost else p_drawn end)::bigint", "p_drawn::bigint"
    ),
    "a batch takes no slots of its queue": Mutation("fq_take_more", "p_limit, l, v_got,", "p_limit, l, 0,"),
    "a queue that begins to draw from a shared limit has nothing out": Mutation(
        "fq_give_slots", "  set slots = m.slots | p_slot", "  set slots = m.slots"
    ),
}
_OF_GROUPS = {
    "a group is followed before its last member has ended": Mutation(
        "fq_fold_notes", "and g.added + s.added <= g.done", "and g.added + s.added <= 1 + g.done", slow=True
    ),
    "a fold forgets what was added before": Mutation(
        "fq_fold_notes", "set added = g.added + s.added,", "set added = s.added,"
    ),
    "what a failure asks for does not follow": Mutation(
        "fq_fold_groups", "(not f.on_failure or g.failed + g.cancelled > 0)", "not f.on_failure"
    ),
    "what a member adds is not counted": Mutation(
        "fq_join_group", "values (0, p_group_id, p_added)", "values (0, p_group_id, 0)"
    ),
    "members that end together count as one": Mutation(
        "fq_end_members", "count(*) filter (where not p_failed)", "max((not p_failed)::integer)", slow=True
    ),
    "an open transaction is forgotten when the floor of the notes rises past it": Mutation(
        "fq_fold_notes", "where x.xid < pg_snapshot_xmax(v_snapshot)", "where false", slow=True
    ),
    "a member that cannot be delivered is cancelled, too": Mutation(
        "fq_bury_messages", "  set cancelled = 0,\n    failed = 1\n", "  set failed = 1\n", slow=True
    ),
}
_OF_ORDERING = {
    "what is held back uses a quota up": Mutation("fq_choose", "is_full := is_full and ", "is_full := is_full or "),
    "a message goes while another one of its ordering key is out": Mutation(
        "fq_goes_first", "m.ordering_key = p_ordering_key\n", "m.ordering_key = p_ordering_key and m.lease_id is null\n"
    ),
    "the last message of an ordering key comes first": Mutation(
        "fq_goes_first", "(m.deliveries = 0), m.id\n", "(m.deliveries = 0), m.id desc\n"
    ),
    "a message that was out before does not come first": Mutation(
        "fq_goes_first", "m.lease_id, (m.deliveries = 0), m.id\n", "m.lease_id, m.id\n"
    ),
    "who takes a single message asks for no ordering key": Mutation(
        "fq_take_one", "    exit when v_head.ordering_key is null;\n", "    exit;\n"
    ),
    "who takes several messages asks for no ordering key": Mutation(
        "fq_choose", "    select u.number, g.goes\n", "    select u.number, true as goes\n"
    ),
    "the end of a message of an ordering key is told to nobody": Mutation(
        "fq_tell_ordering", "  where u.ordering_key is not null\n", "  where false\n"
    ),
    "what is held back is told to nobody": Mutation(
        "fq_hold_back", "ordering_key\n    from held h\n", "ordering_key\n    from held h\n    where false\n", slow=True
    ),
    "who comes first of an ordering key is held back": Mutation(
        "fq_hold_back", "    where not g.goes\n", "    where m.ordering_key is not null\n"
    ),
    "what is held back is never let go": Mutation(
        "fq_let_go", "    where f.is_held\n    for no key update", "    where false\n    for no key update"
    ),
    "what is let go goes before what waits": Mutation(
        "fq_let_go", "(m.channel_id, p_now, m.priority)", "(m.channel_id, m.enqueued_at, m.priority)"
    ),
    "a letter forgets its ordering key": Mutation("fq_bury_messages", "b.ordering_key", "null"),
    "what is redriven forgets its ordering key": Mutation(
        "fq_redrive", "d.ordering_key, d.max_attempts", "null, d.max_attempts"
    ),
    "a replaced message keeps its ordering key": Mutation(
        "fq_add_message", "          ordering_key = p_ordering_key,\n", ""
    ),
    "what is held back stays so in another channel": Mutation(
        "fq_move_message", "if v_held.dequeue_at = 9223372036854775807 then", "if false then"
    ),
    "a batch of an ordering key costs more than it may": Mutation(
        "fq_cut_alike", "      and (f.cost <= p_max_cost) is not false\n", ""
    ),
    "a batch begins with the last message of its ordering key": Mutation(
        "fq_cut_alike", "(x.deliveries = 0), x.id\n        limit", "(x.deliveries = 0), x.id desc\n        limit"
    ),
    "a batch has messages of two kinds": Mutation("fq_cut_alike", "m.kind = p_kind and ", ""),
    "a batch exceeds the limit of its channel": Mutation(
        "fq_take_more", "l.room, v_state.max_concurrency - v_state.current_concurrency,", "l.room,"
    ),
}

MUTATIONS = {
    FairQueueMachine: _OF_ALL, LimitsMachine: _OF_LIMITS, GroupsMachine: _OF_GROUPS, OrderingMachine: _OF_ORDERING,
}  # fmt: skip
"""By the machine that runs them, by what is wrong."""
