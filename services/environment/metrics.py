"""Every metric the environment service emits."""

from prometheus_client import Counter, Gauge, Histogram

_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)

GROUPS = Counter(
    "headrace_environment_groups",
    "Groups of episodes by outcome in this process: settled, handed_back, failed, buried.",
    ["outcome"],
)
EPISODES = Counter("headrace_environment_episodes", "Episodes played, by finish reason.", ["finish_reason"])
EPISODES_BY_LENGTH = Counter(
    "headrace_environment_episodes_by_length",
    "Episodes played, by finish reason and by tokens sampled: up to 0, 64, 256, 1024, 4096, 16384, or more.",
    ["finish_reason", "tokens"],
)
PLAYED_AGAIN = Counter(
    "headrace_environment_episodes_played_again", "Episodes begun anew because their process ended in the middle."
)
EPISODE_SECONDS = Histogram(
    "headrace_environment_episode_seconds", "From the reset of an episode to its end.", buckets=_SECONDS
)
TURNS = Counter("headrace_environment_turns", "Turns sampled by the policy.")
TURN_SECONDS = Histogram(
    "headrace_environment_turn_seconds",
    "Time of a turn, by part: engine, wire, environment.",
    ["part"],
    buckets=_SECONDS,
)
TURN_RETRIES = Counter(
    "headrace_environment_turn_retries",
    "Turns asked again, by reason: full (no row), away (or without weights).",
    ["reason"],
)
SEGMENTS = Counter(
    "headrace_environment_segments",
    "Segments of episodes, by reason: first, template (the chat template does not go on from what was seen); of agents"
    " also opened (another conversation), branched (a turn continued twice), edited (a history with other answers than"
    " those sampled).",
    ["reason"],
)
DROPPED_TURNS = Counter(
    "headrace_environment_dropped_turns",
    "Sampled turns of agents that are not trained: the program went on from their context in another way.",
)
REPEATED_CALLS = Counter(
    "headrace_environment_repeated_calls",
    "Calls of agents that repeat a request whose answer was not used yet: retries, answered by the same turn.",
)
TOKENS = Counter(
    "headrace_environment_tokens", "Tokens of episodes: sampled by the policy, read (what others wrote).", ["kind"]
)
PREFIX_TOKENS = Counter(
    "headrace_environment_prefix_tokens",
    "Tokens of later turns' contexts that the same replica had computed with the same weights: known, and of these"
    " cached (not computed again). Engines that do not report their cache are left out.",
    ["kind"],
)
TOOL_CALLS = Counter(
    "headrace_environment_tool_calls",
    "Calls of tools by outcome: returned, raised, refused (it could not be called), malformed (no call could be read), "
    "late (environment.tool_s passed), lost (the process ended), broken_off.",
    ["tool", "outcome"],
)
TOOL_SECONDS = Histogram("headrace_environment_tool_seconds", "One call of a tool.", ["tool"], buckets=_SECONDS)
CHILDREN_ENDED = Counter(
    "headrace_environment_children_ended",
    "Child processes that ended or were killed, by reason: died, late, lied.",
    ["reason"],
)
IN_FLIGHT = Gauge("headrace_environment_groups_in_flight", "Groups being played.")
HELD = Gauge("headrace_environment_groups_held", "Groups in flight that wait for newer weights, without a slot.")
SLOTS = Gauge("headrace_environment_episodes_capacity", "Episodes that this process plays at a time.")
