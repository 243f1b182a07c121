"""What is answered about what was learnt, as pydantic models: they write the OpenAPI page."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["ExplanationAnswer", "ModelResponse"]

_FROM = (
    '"released sums", so that showing it costs no privacy; or "own records", under own play since the '
    "close: raw, and for the agent's own people alone"
)


class ContributionAnswer(BaseModel):
    """What a term of the recipe adds, in units of rewards."""

    term: str
    words: str = Field(description="What of the visitor and the action it is about.")
    estimate: float = Field(description="To the estimate.")
    bonus: float = Field(description="To the bound, beyond that; negative where it makes up for others.")


class AccountAnswer(BaseModel):
    """level + all terms' estimate + cut_estimate = estimate; with all bonus, and cut_bound, = bound."""

    action: str
    estimate: float
    bound: float
    level: float = Field(description="The public centre of rewards.")
    terms: list[ContributionAnswer]
    cut_estimate: float = Field(description="What is cut off at the range of rewards; mostly 0.")
    cut_bound: float = Field(description="Likewise, of the bound.")


class ExplanationAnswer(BaseModel):
    """Why this action for this visitor."""

    model_config = ConfigDict(populate_by_name=True)

    source: str = Field(alias="from", description=_FROM)
    says: str = Field(description="How it was chosen, in a sentence.")
    chosen: AccountAnswer
    rival: AccountAnswer | None = Field(description="Of the others, the one with the highest bound.")


class LearntAction(BaseModel):
    """What is known of an action."""

    id: str
    share: float | None = Field(
        description="How much of what the sum holds, of all agents and since the season began, was shown it: "
        "read off the noisy sum. Null where no term tells, or noise is larger than all records."
    )
    share_low: float | None = Field(description="With a chance of 95 % it is at least this.")
    share_high: float | None = Field(description="Likewise, at most this.")
    estimate: float | None = Field(description="The reward expected of it for the typical visitor.")
    low: float | None = Field(description="Its mean reward for that visitor is at least this.")
    high: float | None = Field(description="At most this.")
    retired: bool = Field(default=False, description="Whether it is no longer offered.")


class Coefficient(BaseModel):
    """What an entry of a term adds to the mean reward, in its units."""

    words: str = Field(description="What it is the effect of.")
    estimate: float
    low: float = Field(description="It is at least this.")
    high: float = Field(description="At most this.")


class LearntTerm(BaseModel):
    """A term of the recipe."""

    term: str
    says: str = Field(description="What it is for.")
    coefficients: list[Coefficient]


class LearntPoint(BaseModel):
    """What a sum told when it was read."""

    number: int
    at: float = Field(description="Seconds since 1970.")
    actions: list[LearntAction]


class ModelResponse(BaseModel):
    """What was learnt, in the recipe's words."""

    model_config = ConfigDict(populate_by_name=True)

    model: str = Field(description="The sum it rests on, season.number; number 0 is none yet.")
    group: int
    groups: int = Field(description="How many groups of visitors there are, each with a model of its own.")
    source: str | None = Field(alias="from", description=f"{_FROM}. Null before anything was learnt.")
    says: str = Field(description="The same in a sentence.")
    agents: int = Field(description="How many releases are in the sum; a trusted controller's counts as one.")
    confidence: float = Field(
        description="The chance, at least, that all intervals of estimates and coefficients hold, of all "
        "sums of the season together."
    )
    reward_range: tuple[float, float]
    visitor: dict[str, str] = Field(
        description="The typical visitor, by column: from the recipe alone, not from data."
    )
    actions: list[LearntAction] = Field(description="Those that the recipe declares.")
    terms: list[LearntTerm] = Field(description="None before anything was learnt.")
    history: list[LearntPoint] = Field(
        description="At most 200 sums that were read in this season, oldest first; released sums always."
    )
