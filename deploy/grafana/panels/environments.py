"""Environments: episodes, their turns, tools, tokens and abstentions."""

from deploy.grafana.dashboard import Panel, Query, Row
from deploy.grafana.queries import RUN, increase, quantile, rate

_ABSTAINS = 'finish_reason!~"stop|length|turn_limit"'

ENVIRONMENTS = Row(
    "Environments",
    Panel(
        "Groups of episodes",
        "In play, of those that wait for weights, and the slots for single episodes.",
        Query(f"sum by (run) (headrace_environment_groups_in_flight{{{RUN}}})", "groups in flight"),
        Query(f"sum by (run) (headrace_environment_groups_held{{{RUN}}})", "of them wait for weights"),
        Query(f"sum by (run) (headrace_environment_episodes_capacity{{{RUN}}})", "slots"),
    ),
    Panel(
        "Episodes by end",
        "stop, length and turn_limit are scored; time, environment_error and tool_lost abstain.",
        rate("headrace_environment_episodes_total", "finish_reason", "{{finish_reason}}", where=RUN),
        unit="ops",
        stacked=True,
    ),
    Panel(
        "Abstentions by reason",
        "Share of all episodes. Above 5 %: a time limit takes the long ones away.",
        Query(
            f"sum by (run, finish_reason) (rate(headrace_environment_episodes_total{{{RUN}, {_ABSTAINS}}}"
            f"[$__rate_interval])) / on (run) group_left sum by (run) "
            f"(rate(headrace_environment_episodes_total{{{RUN}}}[$__rate_interval]))",
            "{{finish_reason}}",
        ),
        unit="percentunit",
        low=0,
        bad_above=0.05,
    ),
    Panel(
        "Abstentions by length",
        "Share of the episodes of a length (tokens sampled, up to). Rising with the length: the limit filters by it.",
        Query(
            f"sum by (run, tokens) (rate(headrace_environment_episodes_by_length_total{{{RUN}, {_ABSTAINS}}}"
            f"[$__rate_interval])) / sum by (run, tokens) "
            f"(rate(headrace_environment_episodes_by_length_total{{{RUN}}}[$__rate_interval]))",
            "up to {{tokens}}",
        ),
        unit="percentunit",
        low=0,
        bad_above=0.05,
    ),
    Panel(
        "Seconds of episodes",
        "95 % and half of them were faster.",
        *(
            quantile(share, "headrace_environment_episode_seconds", "replica", f"{{{{replica}}}} {name}", where=RUN)
            for share, name in ((0.95, "95 %"), (0.5, "half"))
        ),
        unit="s",
    ),
    Panel(
        "Seconds of turns",
        "95 % were faster: engine, wire (queueing included), environment.",
        quantile(0.95, "headrace_environment_turn_seconds", "part", "{{part}}", where=RUN),
        unit="s",
    ),
    Panel(
        "Turns",
        "A second, and those that were asked again: full (no row), away.",
        rate("headrace_environment_turns_total", "replica", "{{replica}}", where=RUN),
        rate("headrace_environment_turn_retries_total", "reason", "again: {{reason}}", where=RUN),
        unit="ops",
    ),
    Panel(
        "Calls of tools",
        "By outcome; late and lost end their episode.",
        rate("headrace_environment_tool_calls_total", "tool, outcome", "{{tool}} {{outcome}}", where=RUN),
        unit="ops",
    ),
    Panel(
        "Seconds of tools",
        "95 % of the calls were faster.",
        quantile(0.95, "headrace_environment_tool_seconds", "tool", "{{tool}}", where=RUN),
        unit="s",
    ),
    Panel(
        "Tokens of episodes",
        "A second: sampled by the policy, read (context, results of tools).",
        rate("headrace_environment_tokens_total", "kind", "{{kind}}", where=RUN),
        stacked=True,
    ),
    Panel(
        "Segments",
        "first: one an episode. template: the chat template does not go on from what was seen.",
        increase("headrace_environment_segments_total", "reason", "{{reason}}", where=RUN),
        unit="none",
    ),
    Panel(
        "Processes that ended",
        "died, late, lied; and episodes begun anew because of it.",
        increase("headrace_environment_children_ended_total", "reason", "{{reason}}", where=RUN),
        increase("headrace_environment_episodes_played_again_total", "replica", "played again", where=RUN),
        unit="none",
    ),
)
