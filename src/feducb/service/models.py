"""What travels over HTTP, as pydantic models: they check requests and write the OpenAPI page."""

from __future__ import annotations

import json
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, FailFast, Field, PrivateAttr, ValidationError
from pydantic_core import from_json

from feducb.agent import Outcome
from feducb.agent.requests import LONGEST_ID, MOST_CANDIDATES, MOST_NAMED
from feducb.protocol.parcels import ParcelKind
from feducb.service.answers import ExplanationAnswer

MOST_REWARDS = 1000
MOST_VISITORS = 1000

# What is not a number is refused by the agent itself, which looks at lengths anyway.
Candidates = Annotated[
    list[Annotated[list[float], Field(fail_fast=True)]],
    Field(fail_fast=True, min_length=1, max_length=MOST_CANDIDATES),
]
Id = Annotated[str, Field(min_length=1, max_length=LONGEST_ID)]
Name = Annotated[str, Field(min_length=1, max_length=LONGEST_ID)]
# Of a field that may be of several kinds: what is said in place of why it is none of them, one by one.
SEVERAL: dict[str | int, str] = {
    "actions": "Input should be a list of names, or of objects with an id, "
    f"1 to {MOST_NAMED:,} of them; or of rows of numbers, 1 to {MOST_CANDIDATES:,}",
    "follow": "Input should be the index of an action, or its name",
}
Named = Annotated[list[Name | dict[str, Any]], Field(fail_fast=True, min_length=1, max_length=MOST_NAMED)]


class Asked(BaseModel):
    """What a body holds."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @classmethod
    def read(cls, body: bytes) -> Self:
        """From JSON."""
        return cls.model_validate_json(body)


class DecisionRequest(Asked):
    """A visitor, and what could be shown."""

    actions: Candidates | Named | None = Field(
        None,
        union_mode="left_to_right",
        description="What could be shown: names, or objects with an id and the recipe's columns for actions; "
        "left out, the recipe's. Or, without a context, one row of d numbers per candidate, each of length "
        "at most L.",
        examples=[["free_shipping", {"id": "ten_percent", "price": 9.9}]],
    )
    context: dict[str, Any] | None = Field(
        None,
        description="What is known of the visitor: a value per column of the recipe. What is missing, "
        "unknown or out of range is taken by the recipe's rules, and counted; other columns are ignored. "
        "What cannot be meant, such as text in a column of numbers, is refused, and the column named.",
        examples=[{"country": "DE", "age": 36, "returning": True}],
    )
    id: Id | None = Field(
        None,
        description="A name of your own: the same one again, about the same visitor and candidates, gives "
        "the same decision; about others it is refused.",
    )
    person: Annotated[str, Field(min_length=1, max_length=256)] | None = Field(
        None, description="Who it is, where a person may come more than once. Kept as a keyed hash only."
    )
    scores: bool = Field(False, description="Also give all scores.")
    top: Annotated[int, Field(ge=1, le=MOST_CANDIDATES)] | None = Field(
        None, description="Also give the best so many, in order."
    )
    explain: bool = Field(
        False,
        description="Also say what each term of the recipe adds to estimate and bound. Needs a context or "
        "named actions; beside vectors it is refused.",
    )
    follow: Annotated[int, Field(ge=0, le=MOST_CANDIDATES)] | Name | None = Field(
        None, description="In shadow mode: what the application shows, by its index or its name."
    )
    follow_propensity: Annotated[float, Field(gt=0, le=1)] | None = Field(
        None, description="In shadow mode: the chance with which it does, if known."
    )


class DecisionResponse(BaseModel):
    """What to show, and how it was chosen."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=True)  # every field is in an answer

    id: str = Field(description="Names the decision, for its reward.")
    index: int = Field(description="The candidate to show, counted from 0.")
    action: str | None = Field(None, description="Its name; null among vectors.")
    propensity: float | None = Field(description="The chance with which it was chosen.")
    estimate: float | None = Field(
        None, description="The reward that is expected of it; null before anything was learnt."
    )
    bound: float | None = Field(None, description="The most that its mean reward may be; null likewise.")
    model: str = Field(description="The sum it rests on, season.number; number 0 is none yet.")
    would_choose: int = Field(description="In shadow mode: what would have been shown.")
    would_choose_action: str | None = Field(None, description="Its name.")
    scores: list[float] | None = Field(
        None,
        description="If asked for: of each candidate what `bound` is of the one to show, but not cut off at "
        "the range of rewards; null before anything was learnt.",
    )
    ranking: list[int] | None = Field(
        None, description="If asked for: the best candidates in order, counted from 0; null likewise."
    )
    repeated: bool = False
    explanation: ExplanationAnswer | None = Field(
        None, description="If asked for; null before anything was learnt."
    )


class BatchRequest(Asked):
    """Many visitors, each as in a request of its own."""

    decisions: Annotated[list[DecisionRequest], FailFast()] = Field(min_length=1, max_length=MOST_VISITORS)
    _unread: dict[int, ValidationError] = PrivateAttr(default_factory=dict)

    @property
    def unread(self) -> dict[int, ValidationError]:
        """Why a row is none, by its place among all; ``decisions`` has the others."""
        return self._unread

    @classmethod
    def read(cls, body: bytes) -> Self:
        """All at once, which is fast; one by one if some row of several is not as it should be."""
        try:
            return cls.model_validate_json(body)
        except ValidationError as error:
            if any(len(one["loc"]) < 2 for one in error.errors(include_url=False, include_input=False)):
                raise  # it is not about a row
            rows = from_json(body)["decisions"]
            if not 1 < len(rows) <= MOST_VISITORS:
                raise
        read, unread = [], {}
        for place, row in enumerate(rows):
            try:
                read.append(DecisionRequest.read(json.dumps(row).encode()))
            except ValidationError as error:
                unread[place] = error
        made = cls.model_construct(decisions=read)
        made._unread = unread
        return made


class BatchResponse(BaseModel):
    """What to show to each, in order; all of it on disk together."""

    decisions: list[DecisionResponse | None] = Field(description="Null where a visitor was refused.")
    reasons: list[str | None] | None = Field(
        None, description="Only if one of many was refused: by the same order, why; null for the others."
    )


class Reward(Asked):
    """What a decision was worth."""

    id: Id
    value: float = Field(description="From -B to B; another is refused by itself, not the others.")


class DiscardRequest(Asked):
    """A decision that was never shown."""

    id: Id


class FallbacksRequest(Asked):
    """Visitors who were shown a default of the application's own, since no answer came in time."""

    ids: Annotated[list[Id], FailFast()] = Field(
        min_length=1, max_length=MOST_VISITORS, description="Those that the decisions were asked for with."
    )


class RewardsRequest(Asked):
    """Rewards of one or many decisions."""

    rewards: Annotated[list[Reward], FailFast()] = Field(min_length=1, max_length=MOST_REWARDS)


class RewardsResponse(BaseModel):
    """What became of each, in order."""

    outcomes: list[Outcome]
    reasons: list[str | None] | None = Field(
        None, description="Only if one of many was refused: by the same order, why; null for the others."
    )


class ErasureRequest(Asked):
    """Somebody wants to be forgotten."""

    person: Annotated[str, Field(min_length=1, max_length=256)]


class ErasureResponse(BaseModel):
    """What could be undone, and what could not."""

    removed: int
    content_removed: int
    in_sums: int
    said: str


class OutboxName(Asked):
    """Names a message of the outbox."""

    season: Annotated[int, Field(ge=1, le=2**31 - 1)]
    group: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    number: Annotated[int, Field(ge=1, le=2**31 - 1)]
    kind: ParcelKind = Field(
        default=ParcelKind.RELEASE,
        description="A noisy release, a raw upload to be sealed, or a row under pads.",
    )


class OutboxItem(OutboxName):
    """A message that waits to be sent."""

    payload: str = Field(description="Base64.")


class OutboxResponse(BaseModel):
    """What waits, oldest first; and how far the agent is, so that a carrier knows what to bring."""

    items: list[OutboxItem]
    agent: str = Field(description="Its name.")
    place: str = Field(description="Under trust keepers, the newest row that is over: 16 bytes as base64.")
    card: str = Field(description="If the agent is a keeper, its key of the season, signed: base64.")


class InboxRequest(Asked):
    """What a carrier brings: a sum; under trust keepers, a keeper's card or a row that is over."""

    payload: Annotated[str, Field(max_length=2**28)] = Field(description="Base64.")
    agents: int | None = Field(
        default=None, description="How many handed records over, for a trusted controller's release."
    )
    sealed: int = Field(
        default=0, ge=0, description="Likewise, how many have all their batches of the season in it."
    )


class InboxResponse(BaseModel):
    """Whether it is newer than what was there."""

    new: bool


class KeeperRequest(Asked):
    """The list of a row, for the keeper in this process."""

    payload: Annotated[str, Field(max_length=2**28)] = Field(description="Base64.")


class KeeperResponse(BaseModel):
    """The keeper's answer, the same bytes each time."""

    payload: str = Field(description="Base64.")


class Problem(BaseModel):
    """Why something was refused."""

    error: str
    details: list[dict[str, Any]] | None = None


class LogEntry(BaseModel):
    """One line of the operator log."""

    number: int
    at: str = Field(description="UTC, ISO 8601.")
    who: str = Field(description="A user of the machine, or a key by name and fingerprint.")
    what: str
    details: dict[str, Any]
    hash: str = Field(description="SHA-256 over the hash before it and all of this, in hexadecimal.")


class LogResponse(BaseModel):
    """The operator log."""

    entries: list[LogEntry] = Field(description="Oldest first.")
    broken: str | None = Field(
        description="Where the chain of hashes is broken, in words; null if it is whole."
    )
    end: str | None = Field(
        description="The newest hash: note it elsewhere, and ask later whether it is still there."
    )
