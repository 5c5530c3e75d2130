"""Small mistakes in the functions of the schema, which the machine must notice."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutation:
    """A small mistake in a function.

    ``slow``: many programs must run before one stumbles over it. ``limits``, ``groups``, ``ordering``: the machine of
    these runs them.
    """

    name: str
    function: str
    right: str
    wrong: str
    slow: bool = False
    limits: bool = False
    groups: bool = False
    ordering: bool = False

    def __str__(self) -> str:
        return self.name


_KERNEL = [
    Mutation(
        "a message is taken before it is due",
        "fq_cut_batch",
        "      and r.dequeue_at <= p_now\n      and (\n",
        "      and (\n",
    ),
    Mutation(
        "the head goes past a locked message",
        "fq_find_heads",
        "    limit 1\n  ) h on true",
        "    limit 1\n    for no key update skip locked\n  ) h on true",
    ),
    Mutation(
        "a returned message lowers no head",
        "fq_hear_many",
        "(t.dequeue_at, t.message_id) <",
        "(t.dequeue_at, t.message_id) >",
    ),
    Mutation(
        "a batch is cut after what is too much", "fq_cut_batch", "(p.bytes <= p_bytes", "(p.bytes - p.size <= p_bytes"
    ),
    Mutation(
        "a channel that gives nothing is put off",
        "fq_cut_batch",
        "and (r.dequeue_at <= p_now) is not true",
        "and r.ord <> all (coalesce((select array_agg(g.ord) from given g), '{}'))",
    ),
    Mutation("the limit is not read", "fq_choose", "p_limit, s.max_concurrency - s.current_concurrency,", "p_limit,"),
    Mutation("an old hand-out completes", "fq_complete_many", "and m.deliveries = u.deliveries", "", slow=True),
]
_FLOORS = [
    Mutation(
        "an open transaction is forgotten when the floor of the signals rises past it",
        "fq_hear_signals",
        "from pg_snapshot_xip(v_snapshot) x(xid)\n      where x.xid < below",
        "from pg_snapshot_xip(v_snapshot) x(xid)\n      where false",
    ),
    Mutation("what a locked channel was told is put back without its message", "fq_put_back", "t.least[1]", "null"),
    Mutation("a due channel is forgotten", "fq_move_due", "r.due_at <= p_now", "r.due_at < 0"),
    Mutation(
        "who becomes ready beside a channel that stands still is hidden by the floor",
        "fq_attend",
        "greatest(v_first.tag, fairqueue.fq_greatest_tag(p_queue))",
        "fairqueue.fq_greatest_tag(p_queue)",
        slow=True,
    ),
]
_COSTS = [
    Mutation(
        "a cost moves no tag",
        "fq_charge",
        "o.tag_rest, t.charge::bigint, o.weight) as tag",
        "o.tag_rest, 0, o.weight) as tag",
    ),
    Mutation("a batch is filled channel by channel", "fq_cut_batch", "r.start, r.rank, r.ord", "r.ord, r.rank"),
]
_PRIORITY = [
    Mutation("a retry forgets the priority", "fq_return_messages", "    where r.is_promotable\n", "    where false\n"),
    Mutation(
        "a scheduled message keeps its position",
        "fq_promote",
        "fq_position_in(m.channel_id, m.dequeue_at, m.priority)",
        "fq_position_in(m.channel_id, m.dequeue_at, null::integer)",
    ),
    Mutation("who is promoted is told to nobody", "fq_promote", "    where p.lease_id is null\n", "    where false\n"),
    Mutation("a priority begins before its time", "fq_position", "when p_aging is null then", "when true then"),
    Mutation("a letter forgets its priority", "fq_bury_messages", "b.key, b.priority,", "b.key, null,"),
    Mutation(
        "a replaced message keeps its priority",
        "fq_add_message",
        "priority = p_priority,\n",
        "priority = m.priority,\n",
    ),
]
_SERVING = [
    Mutation(
        "the queue's limit is not read",
        "fq_own_room",
        "p_wanted, p_state.max_concurrency - p_state.current_concurrency,",
        "p_wanted,",
    ),
    Mutation(
        "a completion frees a slot of less cost",
        "fq_complete_many",
        "sum((d.slots >> 1) * d.cost)",
        "sum(d.slots >> 1)",
    ),
    Mutation("what is out is not marked", "fq_give_slots", "set slots = m.slots | p_slot", "set slots = m.slots"),
    Mutation(
        "the queue's slots are not freed",
        "fq_attend",
        "state.current_concurrency - h.freed",
        "state.current_concurrency",
    ),
    Mutation("a paused channel is scheduled", "fq_opens_at", "num_nonnulls(p_paused_at) = 0 and ", ""),
    Mutation("a resumed channel stands nowhere", "fq_pause", "where v_head.head_message_id is not null", "where false"),
    Mutation("a backlog never grows", "fq_hear_many", "backlog = s.backlog + t.added", "backlog = s.backlog"),
    Mutation("a withdrawn message stays", "fq_return_messages", "      and h.cancelled\n", "      and false\n"),
    Mutation(
        "a purge forgets what is locked",
        "fq_purge_channel",
        "where x.channel_id = v_channel_id\n          and x.lease_id is null",
        "where false",
    ),
    Mutation("a purge counts nothing", "fq_purge_channel", "    backlog = s.backlog - v_deleted,\n", ""),
    Mutation(
        "a purge waits for what is locked",
        "fq_purge_channel",
        "    for update skip locked",
        "    for update",
        slow=True,
    ),
]
_KEYS = [
    Mutation(
        "a replaced message keeps its attempts",
        "fq_add_message",
        "          attempts = 0,\n",
        "",
        slow=True,
    ),
    Mutation("a replaced message keeps its turn order", "fq_add_message", "dequeue_at = p_at,\n", ""),
    Mutation(
        "a replaced message is told to nobody",
        "fq_enqueue",
        "if outcome in ('created', 'replaced', 'dropped') then",
        "if outcome in ('created', 'dropped') then",
    ),
    Mutation(
        "one of several that are replaced is told to nobody",
        "fq_enqueue_many",
        "where u.created or u.outcome in ('replaced', 'dropped')",
        "where u.created or u.outcome = 'dropped'",
    ),
    Mutation(
        "a message that is out is rewritten",
        "fq_add_message",
        "elsif v_holder is not null and v_lease_id is null then",
        "elsif v_holder is not null then",
    ),
    Mutation(
        "a replaced message counts twice",
        "fq_enqueue",
        "created::integer",
        "(outcome <> 'dropped')::integer",
    ),
    Mutation(
        "one of several that are replaced counts twice",
        "fq_enqueue_many",
        "count(*) filter (where u.created) as added",
        "count(*) filter (where u.outcome <> 'dropped') as added",
    ),
    Mutation(
        "a duplicate is told before what replaces",
        "fq_enqueue_in_order",
        "if not v_is_late and channel_ids[i - 1] = channel_ids[i] and v_later[i - 1] = r.key then",
        "if false then",
        slow=True,
    ),
    Mutation(
        "a letter whose key stands is lost", "fq_redrive", "d.message_id = any (v_back)", "d.message_id = any (v_ids)"
    ),
    Mutation("what is redriven is not counted", "fq_redrive", "count(*) as added", "0 as added"),
]
_BOUNDS = [
    Mutation(
        "what was dropped is not counted",
        "fq_enqueue",
        "(outcome = 'dropped')::integer",
        "0",
    ),
    Mutation(
        "one of several that was dropped is not counted",
        "fq_enqueue_many",
        "count(*) filter (where not u.created and u.outcome = 'dropped') as dropped",
        "0 as dropped",
    ),
    Mutation("what was dropped is not heard", "fq_hear_many", "dropped = s.dropped + t.dropped", "dropped = s.dropped"),
    Mutation(
        "what nobody has heard of takes no room",
        "fq_channel_room",
        "and g.bounded\n              and g.id > n.heard_id",
        "and false",
    ),
    Mutation(
        "no signal takes room",
        "fq_enqueue",
        "created and v_state.max_backlog is not null",
        "false",
    ),
    Mutation(
        "no signal of several messages takes room",
        "fq_enqueue_many",
        "t.added > 0 and t.channel_id = any (v_added.bounded_ids)",
        "false",
    ),
    Mutation(
        "a call takes no room",
        "fq_enqueue_in_order",
        "        v_room.room := v_room.room - created[i]::integer;\n",
        "",
    ),
    Mutation(
        "a channel hears what was not told",
        "fq_hear_many",
        "heard_id = greatest(s.heard_id, t.last_id)",
        "heard_id = t.last_id + 1",
    ),
    Mutation(
        "a new channel has no bound",
        "fq_make_channels",
        "s.*, v_policy) as state",
        "s.*, v_policy - 'max_backlog') as state",
    ),
    Mutation(
        "a new channel has no policy", "fq_make_channels", "  where q.name = p_queue;", "  where false;", slow=True
    ),
    Mutation(
        "a limit of the queue is a policy",
        "fq_make_channels",
        "select coalesce(n.policy, q.defaults), n.name",
        "select coalesce(n.policy, q.defaults, '{}'), n.name",
        slow=True,
    ),
    Mutation(
        "a policy is none",
        "fq_set_queue",
        "  set defaults = v_new.defaults",
        "  set defaults = q.defaults",
        slow=True,
    ),
    Mutation(
        "a bound counts what is to come",
        "fq_configure_channel",
        "select coalesce(sum(g.added), 0)",
        "select coalesce(sum(0), 0)",
    ),
    Mutation(
        "a change forgets the other fields",
        "fq_configure_channel",
        "(to_jsonb(v_state) || v_base)::jsonb, v_changes,",
        "v_base, v_changes,",
    ),
    Mutation(
        "a bound is never lifted",
        "fq_write_policies",
        "max_backlog = w.max_backlog",
        "max_backlog = coalesce(w.max_backlog, s.max_backlog)",
        slow=True,
    ),
]

_ROLES = [
    Mutation(
        "the channels of a grant are not read",
        "fq_check_grant",
        "where (n.name = any (v_covered)) is not true",
        "where false",
    ),
    Mutation(
        "the queues of a grant are not read",
        "fq_check_grant",
        "bool_or((g.queues is null or p_queue = any (g.queues)) is true and g.channels is null)",
        "bool_or(g.channels is null)",
    ),
    Mutation(
        "a grant of another kind bounds a completion", "fq_complete", "array['consumer']", "array['operator', 'loader']"
    ),
    Mutation(
        "a cancel asks for no channel",
        "fq_check_message_grant",
        "      where m.id = any (p_ids)\n",
        "      where false\n",
    ),
    Mutation(
        "one good channel of several is enough",
        "fq_enqueue",
        "p_queue, coalesce(p_channels, '{}'::text[])::text[]",
        "p_queue, coalesce(p_channels[:1], '{}'::text[])::text[]",
        slow=True,
    ),
]
_SPOILT = [
    Mutation(
        "a good message is set aside",
        "fq_set_channel_aside",
        "fairqueue.fq_try_messages(array[v_row]::tid[], array[message_id]::bigint[]);",
        "'it is a suspect';",
    ),
    Mutation(
        "what becomes a letter stays in the backlog",
        "fq_set_message_aside",
        "values (p_queue, v_message.channel_id, -1, true);",
        "values (p_queue, v_message.channel_id, 0, true);",
    ),
    Mutation(
        "a channel that somebody holds is waited for",
        "fq_set_channel_aside",
        "  for no key update skip locked;\n  if not found",
        "  for no key update;\n  if not found",
        slow=True,
    ),
]
_LIMITS = [
    Mutation(
        "the rate of a queue stays as it was",
        "fq_limit_queue",
        "v_marked.cost,\n    rate_interval = v_new.rate_interval,\n",
        "v_marked.cost,\n",
        limits=True,
    ),
    Mutation(
        "what other queues have out takes no room in a shared limit",
        "fq_draw_room",
        "else x.messages_out end",
        "else 0 end",
        limits=True,
    ),
    Mutation(
        "what is drawn does not count for the rate of a shared limit",
        "fq_draw",
        "        rate_at = r.rate_at,\n",
        "",
        limits=True,
    ),
    Mutation(
        "a rate of the queue in cost counts messages",
        "fq_report",
        "(case when v_state.rate_of = 'cost' then p_sight.spent else p_got end)::bigint",
        "p_got::bigint",
        limits=True,
    ),
    Mutation(
        "a rate of a shared limit in cost counts messages",
        "fq_draw",
        "(case when f.rate_of = 'cost' then p_cost else p_drawn end)::bigint",
        "p_drawn::bigint",
        limits=True,
    ),
    Mutation(
        "a queue that begins to draw from a shared limit has nothing out",
        "fq_give_slots",
        "  set slots = m.slots | p_slot",
        "  set slots = m.slots",
        limits=True,
    ),
]
_GROUPS = [
    Mutation(
        "a group is followed before its last member has ended",
        "fq_fold_notes",
        "and g.added + s.added <= g.done",
        "and g.added + s.added <= 1 + g.done",
        slow=True,
        groups=True,
    ),
    Mutation(
        "a fold forgets what was added before",
        "fq_fold_notes",
        "set added = g.added + s.added,",
        "set added = s.added,",
        groups=True,
    ),
    Mutation(
        "what a failure asks for does not follow",
        "fq_fold_groups",
        "(not f.on_failure or g.failed + g.cancelled > 0)",
        "not f.on_failure",
        groups=True,
    ),
    Mutation(
        "what a member adds is not counted",
        "fq_join_group",
        "values (0, p_group_id, p_added)",
        "values (0, p_group_id, 0)",
        groups=True,
    ),
    Mutation(
        "members that end together count as one",
        "fq_end_members",
        "count(*) filter (where not p_failed)",
        "max((not p_failed)::integer)",
        slow=True,
        groups=True,
    ),
    Mutation(
        "an open transaction is forgotten when the floor of the notes rises past it",
        "fq_fold_notes",
        "where x.xid < pg_snapshot_xmax(v_snapshot)",
        "where false",
        slow=True,
        groups=True,
    ),
    Mutation(
        "a member that cannot be delivered is cancelled, too",
        "fq_bury_messages",
        "  set cancelled = 0,\n    failed = 1\n",
        "  set failed = 1\n",
        slow=True,
        groups=True,
    ),
]
_RESULTS = [
    Mutation(
        "what is completed after it was cancelled is a result",
        "fq_complete_many",
        "on conflict on constraint fq_result_pkey do nothing",
        "on conflict on constraint fq_result_pkey do update set outcome = excluded.outcome",
    ),
    Mutation(
        "what a cancel withdraws has no result",
        "fq_cancel",
        "    where v_retention is not null\n",
        "    where false\n",
    ),
]
_QUOTAS = [
    Mutation(
        "a quota of a channel forgets what is out",
        "fq_fit_costs",
        "u.before + u.cost <= s.max_cost_out - s.current_cost",
        "u.before + u.cost <= s.max_cost_out",
    ),
    Mutation(
        "a rate in cost counts messages",
        "fq_charge",
        "(case when o.rate_of = 'cost' then u.cost else u.got end)::bigint",
        "u.got::bigint",
    ),
    Mutation(
        "a quota of the queue forgets what is out",
        "fq_queue_room",
        "p_sight.cost_left := v_state.max_cost_out - v_state.current_cost;",
        "p_sight.cost_left := v_state.max_cost_out;",
    ),
    Mutation(
        "what is held back uses a quota up",
        "fq_choose",
        "is_full := is_full and ",
        "is_full := is_full or ",
        ordering=True,
    ),
]
_ORDERING = [
    Mutation(
        "a message goes while another one of its ordering key is out",
        "fq_goes_first",
        "        and m.ordering_key = p_ordering_key\n",
        "        and m.ordering_key = p_ordering_key\n        and m.lease_id is null\n",
        ordering=True,
    ),
    Mutation(
        "the last message of an ordering key comes first",
        "fq_goes_first",
        "m.deliveries desc, m.id\n",
        "m.deliveries desc, m.id desc\n",
        ordering=True,
    ),
    Mutation(
        "a message that was out before does not come first",
        "fq_goes_first",
        "m.lease_id, m.deliveries desc, m.id\n",
        "m.lease_id, m.id\n",
        ordering=True,
    ),
    Mutation(
        "who takes a single message asks for no ordering key",
        "fq_take_one",
        "    exit when v_head.ordering_key is null;\n",
        "    exit;\n",
        ordering=True,
    ),
    Mutation(
        "who takes several messages asks for no ordering key",
        "fq_choose",
        "    select u.number, g.goes\n",
        "    select u.number, true as goes\n",
        ordering=True,
    ),
    Mutation(
        "the end of a message of an ordering key is told to nobody",
        "fq_tell_ordering",
        "  where u.ordering_key is not null\n",
        "  where false\n",
        ordering=True,
    ),
    Mutation(
        "what is held back is told to nobody",
        "fq_hold_back",
        "    select distinct p_queue, h.channel_id, h.ordering_key\n    from held h\n",
        "    select distinct p_queue, h.channel_id, h.ordering_key\n    from held h\n    where false\n",
        slow=True,
        ordering=True,
    ),
    Mutation(
        "who comes first of an ordering key is held back",
        "fq_hold_back",
        "    where not g.goes\n",
        "    where m.ordering_key is not null\n",
        ordering=True,
    ),
    Mutation(
        "what is held back is never let go",
        "fq_let_go",
        "    where f.is_held\n    for no key update",
        "    where false\n    for no key update",
        ordering=True,
    ),
    Mutation(
        "what is let go goes before what waits",
        "fq_let_go",
        "fairqueue.fq_position_in(m.channel_id, p_now, m.priority)",
        "fairqueue.fq_position_in(m.channel_id, m.enqueued_at, m.priority)",
        ordering=True,
    ),
    Mutation("a letter forgets its ordering key", "fq_bury_messages", "b.ordering_key", "null", ordering=True),
    Mutation(
        "what is redriven forgets its ordering key",
        "fq_redrive",
        "d.ordering_key, d.max_attempts",
        "null, d.max_attempts",
        ordering=True,
    ),
    Mutation(
        "a replaced message keeps its ordering key",
        "fq_add_message",
        "          ordering_key = p_ordering_key,\n",
        "",
        ordering=True,
    ),
    Mutation(
        "what is held back stays so in another channel",
        "fq_move_message",
        "if v_held.dequeue_at = 9223372036854775807 then",
        "if false then",
        ordering=True,
    ),
    Mutation(
        "a batch of an ordering key costs more than it may",
        "fq_cut_alike",
        "      and (f.cost <= p_max_cost) is not false\n",
        "",
        ordering=True,
    ),
    Mutation(
        "a batch begins with the last message of its ordering key",
        "fq_cut_alike",
        "x.deliveries desc, x.id\n        limit",
        "x.deliveries desc, x.id desc\n        limit",
        ordering=True,
    ),
    Mutation("a batch has messages of two kinds", "fq_cut_alike", "m.kind = p_kind and ", "", ordering=True),
    Mutation(
        "a batch exceeds the limit of its channel",
        "fq_take_more",
        "l.room, v_state.max_concurrency - v_state.current_concurrency,",
        "l.room,",
        ordering=True,
    ),
]

MUTATIONS = [
    *(*_KERNEL, *_FLOORS, *_COSTS, *_PRIORITY, *_SERVING, *_KEYS, *_BOUNDS, *_ROLES, *_SPOILT, *_LIMITS),
    *(*_GROUPS, *_RESULTS, *_QUOTAS, *_ORDERING),
]
