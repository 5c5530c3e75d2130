"""What each figure means, and where that comes from: these words stand on the page."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Definition:
    """The meaning of a figure.

    Attributes:
        title: Its name on the page.
        meaning: What it is.
        source: Where it is read from, or who defined it.
        fields: The fields of the values in ``figures`` that hold it.
    """

    title: str
    meaning: str
    source: str
    fields: tuple[str, ...]

    @property
    def anchor(self) -> str:
        """Its place on the page."""
        return "def-" + self.title.lower().replace(" ", "-").replace("'", "")


_TIMES = "fq_history: enqueued_at, ready_at, started_at, finished_at, by the database's clock"
DEFINITIONS = (
    Definition(
        "Attempt",
        "One time that a message was in a consumer's hands, and how it ended: completed, retried, released, buried, "
        "expired (its lease ended) or cancelled. All figures are of attempts that have ended: what waits or is handled "
        "when the report is made is not in a history yet. A channel is a tenant.",
        "fq_history, a row an attempt",
        ("attempts", "outcomes", "channels", "queue", "channel", "from_", "to"),
    ),
    Definition(
        "Wait",
        "From when the message was ready (enqueued, due, or given back) to when the attempt began. p95 is the least "
        "wait that 95 of 100 attempts did not exceed (nearest rank).",
        f"{_TIMES}; R. J. Hyndman, Y. Fan, Sample quantiles in statistical packages, 1996, definition 1",
        ("wait", "mean_wait"),
    ),
    Definition(
        "Service",
        "From when the attempt began to when it ended, however it ended: for how long the message was in a consumer's "
        "hands.",
        _TIMES,
        ("service",),
    ),
    Definition(
        "Slowdown",
        "(wait + service) / service of an attempt: how many times as long it took because it had to wait. A service "
        "counts as 10 ms at least, and the slowdown as 1 at least, so that short work does not make it endless.",
        "Bounded slowdown: D. G. Feitelson and others, Theory and practice in parallel job scheduling, 1997",
        ("slowdown",),
    ),
    Definition(
        "Throughput",
        "Attempts that began, and that completed their message, in a window of time, by the second.",
        _TIMES,
        ("started", "completed", "windows", "window", "begin"),
    ),
    Definition(
        "Backlog",
        "Messages that were ready and not started. A channel is backlogged while it has one.",
        _TIMES,
        ("waiting", "backlogged"),
    ),
    Definition(
        "Concurrency",
        "How many messages were in consumers' hands at one instant. An attempt counts from its beginning up to, and "
        "not including, its end. Busy is the time in which at least one was.",
        "Sweep over the beginnings and ends of all attempts; the policy as it was when the report was made",
        ("greatest_concurrency", "busy", "policy"),
    ),
    Definition(
        "Rate",
        "The most attempts of a channel that began in one second of UTC. Where its policy has a rate, the burst is the "
        "least release_burst that would have allowed what was seen, with the policy's release_interval: no more than "
        "the policy's means that the rate was kept.",
        "Generic cell rate algorithm, ITU-T I.371; the policy as it was when the report was made",
        ("greatest_rate", "greatest_burst"),
    ),
    Definition(
        "Starvation",
        "A channel is starved while it has messages ready, none in a consumer's hands, and another channel of its "
        "queue has one. Time in which nobody was served does not count. The longest starvation is the longest such "
        "time between two of its attempts. A limit of the channel's own policy, or a pause, looks the same.",
        "Sweep over the events of all attempts of the queue",
        ("starved", "longest_starvation"),
    ),
    Definition(
        "Fair share",
        "All attempts that began in a window of time, given out anew: to each channel in proportion to its weight, to "
        "none more than it could use, so that nobody could get more without another getting less who has less. A "
        "channel could use what was ready when the window began, or what it got, if that is more; and no more than its "
        "rate and its max_concurrency (by its mean service) allow. In the tables: served / fair share, over the "
        "windows at whose beginning the channel had a backlog.",
        "Max-min fairness by water-filling: D. Bertsekas, R. Gallager, Data Networks, 2nd edition, 1992, 6.5.2",
        ("fair_share", "fairness_window"),
    ),
    Definition(
        "Denied wait",
        "What of the mean wait the channel would not have had at its fair share, at least: the messages that it got "
        "less than its fair share, window by window, each times the width of the window, over its attempts. They "
        "all had waited through that window. Tenants are ranked by it.",
        "From the fair shares",
        ("denied_wait",),
    ),
    Definition(
        "Jain's index",
        "How evenly x = served / fair share is spread: (sum of x)\u00b2 / (n \u00b7 sum of x\u00b2), from 1 (all "
        "got the same part of their share) down to 1/n (one got everything). It is taken over the channels that "
        "still had some of the work left that was ready when the window began, and those that got more than their "
        "share; windows with fewer than two of these are left out, and contended is the part of all windows that "
        "is not. A window is so wide that a backlogged channel gets eight messages in it on average.",
        "R. Jain, D. Chiu, W. Hawe, A quantitative measure of fairness and discrimination for resource allocation in "
        "shared computer systems, DEC-TR-301, 1984",
        ("fairness", "least_fairness", "contended"),
    ),
)
