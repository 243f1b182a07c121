"""`agent.toml` as `feducb agent init` writes it: a word on each setting, and what stands in for some."""

from __future__ import annotations

__all__ = [
    "BUDGET",
    "KEEPERS",
    "NO_ACTIONS",
    "NO_BUDGET",
    "NO_KEEPERS",
    "NO_RECIPE",
    "NUMBERS",
    "POLICY",
    "PRACTICAL_POLICY",
    "RECIPE",
    "ROOM",
    "TEMPLATE",
]

TEMPLATE = """\
version = 2
# What begins with # is left at its default.

[agent]
name = "{name}"
store = "{name}.db"            # private: holds what waits. Never put an old copy back (see `agent backup`)

[problem]                      # public bounds, the same at all agents
{problem}

[privacy]                      # what a person is promised, over all that ever leaves in a season
{budget}
records_per_person = {per_person}         # more needs a `person` with every decision
spacing = {spacing}                    # above 0: a person's records are so many releases apart; less noise
trust = {trust:22} # who adds the noise: nobody (each agent), controller or keepers; self: nothing leaves
{keepers}# agents_per_person = 1        # unless trust is "nobody": people visit one agent each. Left out: all
contexts = {contexts:19} # public: what visitors are and are shown is NOT protected, rewards are
# mechanism = "auto"           # how noise is spread over releases

[federation]                   # the same at all agents
agents = {agents}
decisions = {decisions}            # of one agent in a season, roughly
history = {history}                    # records of one agent from before, roughly: `feducb agent warm-start`
{quorum}
# groups = 1                   # more than one only among peers
# alpha = 0.1                  # the chance that the confidence bound ever fails

[releases]                     # the same at all agents
season = "{season}"
{start}
{schedule}
[rewards]
window = "{window}"                  # a reward may come so long after its decision; public and fixed
default_reward = {default!r:13} # what counts if none came

[decisions]                    # stay as they are for a season
play = {play:23} # own: after the last release own records are looked at too; the same at all agents
{distance}
{policy}
uniform_share = {uniform_share!r:14} # above 0: logs can judge other policies
holdout = {holdout!r:20} # decided as the agent alone would, to see what the others are worth; docs/service.md
shadow = {shadow:16}      # true: follow the application's own choice
follow_policy = "learning"     # of the application; "fixed": public, and never learns from rewards

[seasons]                      # the same at all agents; stay as they are for a season
remember = {remember:19} # earlier seasons whose sums are read too: all, how many, or none
{discount}
drift = {drift:22} # or a half-life, such as "90d": in so long what was learnt counts half
# first_season = 1             # the number of the one that starts at `start`; the clock opens the others
{most_epsilon}
# most_delta                   # at this delta; that of [privacy] if left out

[retention]
keep_events = {keep:16} # raw events are gone once they are in the sums; longer for `agent export`

[service]
host = "127.0.0.1"
port = {port}
keys = "{name}.keys"
# largest_body = 1048576       # bytes of a request
# certificate = "{name}.pem"
# private_key = "{name}.key"
# client_ca = "ca.pem"         # callers must show a certificate that it signed
"""

KEEPERS = """\
away = {away:<23} # how many agents may miss a row
colluding = {colluding:<18} # how many may tell the controller what they sent
"""
POLICY = """\
policy = "tempered"            # how the agent chooses; `feducb simulate --policy` has the list
# exploration = 1.0            # part of the bonus of the optimistic policy; 1 is the proven one"""
PRACTICAL_POLICY = """\
policy = "optimistic"          # how the agent chooses; "tempered" plays the proven bonus, and explores more
exploration = {exploration!r:16} # part of the proven bonus: less is explored, and no regret is proven"""
BUDGET = "epsilon = {epsilon!r}\ndelta = {delta!r}"
NO_BUDGET = (
    "# epsilon, delta              # none under trust self: nothing leaves. Needed to join others later"
)
NO_KEEPERS = "# away, colluding             # of trust keepers: how many may miss a row, or tell on others\n"
NO_RECIPE = '# recipe = "recipe.json"       # visitors and actions in words; `feducb recipe init` writes one'
ROOM = (
    "# reserve, added, retired       # beside actions: room for more in a season, names that came, that went"
)
NO_ACTIONS = f"""# actions = ["a", "b", "c"]    # in place of a recipe, for offers without features
{ROOM}"""
NUMBERS = f"""\
dim = {{dim:<24}} # d, numbers per candidate; in its place:
{NO_RECIPE}
{NO_ACTIONS}
# reward_range = [0.0, 1.0]    # in place of reward_bound and reward_centre
action_bound = 1.0             # L, no candidate is longer
reward_bound = {{bound!r:15}} # B, the most that a reward may differ from its centre: noise is made for it
reward_centre = {{centre!r:14}} # taken off each reward; other than 0, candidates need a constant number
parameter_bound = 1.0          # S, of rewards less their centre
noise_scale = {{noise!r:16}} # no more than half of the range of rewards"""
RECIPE = """\
{recipe}
reward_range = {range:15} # of all rewards. B is half of it, since each counts less the middle: noise is for B
# What follows from the recipe; given here, it must be the same (`feducb recipe show`):
# dim = {dim}
# action_bound = {action_bound!r}
# reward_bound = {reward_bound!r}
# reward_centre = {reward_centre!r}
# parameter_bound = {parameter_bound!r}
# noise_scale = {noise_scale!r}"""
