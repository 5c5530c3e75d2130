"""Definitions of the figures, with their sources: these texts are on the page."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Definition:
    """The meaning of a figure.

    Attributes:
        title: Its name on the page.
        meaning: Its meaning.
        source: The data that it is read from, or the publication that defines it.
        fields: The fields of the values in ``figures`` that hold it.
    """

    title: str
    meaning: str
    source: str
    fields: tuple[str, ...]

    @property
    def anchor(self) -> str:
        """Its anchor on the page."""
        return "def-" + self.title.lower().replace(" ", "-").replace("'", "")


_TIMES = "fq_history: enqueued_at, ready_at, started_at, finished_at, by the database's clock"
DEFINITIONS = (
    Definition(
        "Attempt",
        "One delivery of a message to a consumer, and its outcome: completed, retried, released, buried, expired (its "
        "lease ended) or cancelled. All figures are of attempts that have ended: messages that wait or are handled "
        "when the report is made are not in the history yet. A channel is a tenant.",
        "fq_history, a row an attempt",
        ("attempts", "outcomes", "channels", "queue", "channel", "from_", "to"),
    ),
    Definition(
        "Wait",
        "The time from when the message was ready (enqueued, due, or released) to the start of the attempt. p95 is the "
        "least wait that 95 of 100 attempts did not exceed (nearest rank).",
        f"{_TIMES}; R. J. Hyndman, Y. Fan, Sample quantiles in statistical packages, 1996, definition 1",
        ("wait", "mean_wait"),
    ),
    Definition(
        "Service",
        "The time from the start of the attempt to its end, with any outcome.",
        _TIMES,
        ("service",),
    ),
    Definition(
        "Slowdown",
        "(wait + service) / service of an attempt: the factor by which waiting made it longer. A service counts as 10 "
        "ms at least, and the slowdown as 1 at least, so that very short work does not make it infinite.",
        "Bounded slowdown: D. G. Feitelson and others, Theory and practice in parallel job scheduling, 1997",
        ("slowdown",),
    ),
    Definition(
        "Throughput",
        "Attempts that started, and attempts that completed their message, a second, in a window of time.",
        _TIMES,
        ("started", "completed", "windows", "window", "begin"),
    ),
    Definition(
        "Backlog",
        "Messages that are ready and not started. A channel is backlogged while it has one.",
        _TIMES,
        ("waiting", "backlogged"),
    ),
    Definition(
        "Concurrency",
        "The number of messages that were leased at one instant. An attempt counts from its start up to, and not "
        "including, its end. Busy is the time in which at least one message was leased.",
        "Sweep over the starts and ends of all attempts; the policy as it was when the report was made",
        ("greatest_concurrency", "busy", "policy"),
    ),
    Definition(
        "Rate",
        "The most attempts of a channel that started in one second of UTC. If its policy has a rate, the burst is the "
        "least rate_burst that would have allowed these attempts, with the policy's rate_interval. If it is not "
        "above the policy's, the rate was kept.",
        "Generic cell rate algorithm, ITU-T I.371; the policy as it was when the report was made",
        ("greatest_rate", "greatest_burst"),
    ),
    Definition(
        "Starvation",
        "A channel is starved while it has ready messages, none of its messages is leased, and one of another channel "
        "of its queue is. Time in which no channel was served does not count. The longest starvation is the longest "
        "such time between two of its attempts. A limit of the channel's own policy, or a pause, looks the same.",
        "Sweep over the events of all attempts of the queue",
        ("starved", "longest_starvation"),
    ),
    Definition(
        "Fair share",
        "The attempts that started in a window of time, divided among the channels in proportion to their weights, and "
        "to none more than it could use (max-min fairness: no channel could get more unless one with less got even "
        "less). A channel could use the messages that were ready when the window began, or those that it got, if these "
        "are more; and no more than its rate and its max_concurrency (by its mean service) allow. In the tables: "
        "served / fair share, over the windows at whose start the channel had a backlog.",
        "Max-min fairness by water-filling: D. Bertsekas, R. Gallager, Data Networks, 2nd edition, 1992, 6.5.2",
        ("fair_share", "fairness_window"),
    ),
    Definition(
        "Denied wait",
        "The part of the mean wait that the channel would not have had with its fair share, at least. In each window, "
        "the messages by which it got less than its fair share waited through the whole window: the sum of these "
        "waits is divided by the number of its attempts. Tenants are ranked by it.",
        "From the fair shares",
        ("denied_wait",),
    ),
    Definition(
        "Plan",
        "The tenants that followed a plan when the report was made, taken together: percentiles of all of their "
        "attempts, and their parts of all attempts, of the workers' time and of the costs of the queue.",
        "fq_channel_plan; the figures of their attempts",
        ("plan", "part", "service_part", "denied_channels"),
    ),
    Definition(
        "Because of",
        "In each window in which a channel was denied messages of its share, other channels got as many above theirs. "
        "They count as its culprits, in proportion to what they got above their share in that window. The worst "
        "stretch of a channel is the run of windows in which it was denied most; a single window without denial does "
        "not end it.",
        "From the fair shares",
        ("denial", "above_share"),
    ),
    Definition(
        "Shares by cost",
        "Fair shares, denials and Jain's index once more, of the costs of the attempts instead of their number. An "
        "attempt counts with its cost in the window in which it started. The windows are so wide that a backlogged "
        "channel gets eight of the dear messages (of the dearest hundredth) in one on average, and at least twenty "
        "cover the record. They are left out where all attempts cost the same.",
        "fq_history: cost, which the settlement said, else what the channel was charged",
        ("by_cost", "cost", "denied_cost"),
    ),
    Definition(
        "Jain's index",
        "How evenly x = served / fair share is distributed: (sum of x)\u00b2 / (n \u00b7 sum of x\u00b2), from 1 "
        "(all got the same part of their share) down to 1/n (one got everything). It is taken over the channels that "
        "had messages left at the end of the window which were ready at its start, and those that got more than their "
        "share. Windows with fewer than two such channels are left out; contended is the part of the windows with at "
        "least two. A window is so wide that a backlogged channel gets eight messages in it on average.",
        "R. Jain, D. Chiu, W. Hawe, A quantitative measure of fairness and discrimination for resource allocation in "
        "shared computer systems, DEC-TR-301, 1984",
        ("fairness", "least_fairness", "contended"),
    ),
    Definition(
        "Capacity",
        "Messages that the workers of a replay handle at once. Unless the scenario names a number, it is the mean "
        "number of leased messages in the record, weighted by time, while at least as many messages waited as were "
        "ever leased at once. Attempts that expired or were released do not count. A message that a worker prefetched "
        "counts from its lease on, in the capacity as in the durations: as many messages are done a second as in the "
        "record.",
        "Little's law: J. D. C. Little, A proof for the queuing formula L = lambda W, 1961",
        ("workers", "estimated", "least_workers", "greatest_workers"),
    ),
    Definition(
        "Settings of a scenario",
        "The order in which a replay serves messages, and what the scenario limits. In turn: tenants are served as in "
        "the queue, by messages, by cost or by seconds.",
        _TIMES,
        ("settings",),
    ),
    Definition(
        "Error",
        "The record, replayed under its own policies, compared with itself: the mean difference between the replayed "
        "and the recorded time from ready to finished of an attempt, as a part of the mean recorded time. With more "
        "than 15 % the forecasts of the queue are not to be trusted.",
        _TIMES,
        ("replay_error", "replay_bias", "policies_known"),
    ),
)
