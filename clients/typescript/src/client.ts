/** A small typed client of the decision service. Types are those of `api.ts`, made from its OpenAPI document. */

import type { components } from "./api.js";
import { type Asked, type Fallback, fallbackFor, Fallbacks, type Kept } from "./fallback.js";
import { sayable } from "./sayable.js";
import { ServiceError, Transport } from "./transport.js";

export { type Fallback, Fallbacks } from "./fallback.js";
export { type Options, ServiceError } from "./transport.js";

type Schemas = components["schemas"];
/** A visitor, and what could be shown. */
export type Visitor = Schemas["DecisionRequest"];
/** What to show, and how it was chosen. */
export type Decision = Schemas["DecisionResponse"] & { fallback: false };
/** What became of a reward, or of a wish to discard. */
export type Outcome = Schemas["Outcome"];

const AWAY = 1000; // milliseconds for which a service that did not answer is not asked, where there is a default
const MOST_IDS = 1000; // reported in one request
const MOST_REQUESTS = 20; // likewise
type Answered = Schemas["DecisionResponse"];
type Batch = Schemas["BatchResponse"];
type Outcomes = Schemas["RewardsResponse"];

/** Asks a decision service; sends again what got no answer, which changes nothing that was done before. */
export class Client extends Transport {
  private askAgainAt = 0;
  private reporting = false;
  /** What was shown while the service was away: how often, and what became of it. */
  readonly fallbacks = new Fallbacks();

  /**
   * Ask which candidate to show (others call it *rank*).
   *
   * With a `fallback`, a name or an index, that is the answer if the service is away (no connection, no answer in
   * time, 5xx). Where the recipe has the actions it is a name, which is not checked. The service is asked once then, and
   * after one that failed, not for a second. What was shown is kept in memory, 10,000 at most, and reported when the
   * service is back.
   */
  async decide(visitor?: Visitor): Promise<Decision>;
  async decide(visitor: Visitor, or: { fallback: number | string }): Promise<Decision | Fallback>;
  async decide(visitor: Visitor = {}, or?: { fallback: number | string }): Promise<Decision | Fallback> {
    const asked = named(visitor);
    const fallback = or && [fallbackFor(or.fallback, asked)];
    const answer = await this.orDefault<Answered>("/v1/decisions", asked, [asked], fallback);
    return Array.isArray(answer) ? answer[0]! : { ...answer, fallback: false };
  }

  /**
   * Ask for up to 1,000 visitors at once. One of many that is refused gets null, and why is a warning on the
   * console; one alone throws.
   *
   * A `fallback`, as for `decide`, is one for all or one for each: either all get the service's answer, or all get
   * their default.
   */
  async decideMany(visitors: Visitor[]): Promise<(Decision | null)[]>;
  async decideMany(
    visitors: Visitor[],
    or: { fallback: number | string | (number | string)[] },
  ): Promise<(Decision | Fallback | null)[]>;
  async decideMany(
    visitors: Visitor[],
    or?: { fallback: number | string | (number | string)[] },
  ): Promise<(Decision | Fallback | null)[]> {
    const asked = visitors.map(named);
    const each = or && (Array.isArray(or.fallback) ? or.fallback : asked.map(() => or.fallback as number | string));
    if (each && each.length !== asked.length)
      throw new RangeError(`fallback has ${each.length}, expected one for all, or one for each of ${asked.length}`);
    const fallbacks = each?.map((one, place) => fallbackFor(one, asked[place]!));
    const answer = await this.orDefault<Batch>("/v1/decisions/batch", { decisions: asked }, asked, fallbacks);
    if (Array.isArray(answer)) return answer;
    tellRefused("decisions", answer.reasons);
    return answer.decisions.map((one) => one && { ...one, fallback: false });
  }

  /** Say what a decision was worth; throws if it is out of range. Of a fallback it is `discarded`, in shadow mode `waiting`. */
  async reward(id: string, value: number): Promise<Outcome> {
    return (await this.rewards([{ id, value }]))[0]!;
  }

  /** Say what up to 1,000 decisions were worth: the outcomes in order. One of many out of range is `refused` alone. */
  async rewards(rewards: Schemas["Reward"][]): Promise<Outcome[]> {
    if (rewards.some(({ id }) => this.fallbacks.get(id))) await this.reportSome();
    const outcomes = rewards.map(({ id, value }) => this.keepReward(id, value));
    const rest = rewards.filter((_, place) => outcomes[place] === null);
    const sent = rest.length ? (await this.sendRewards(rest)).values() : [].values();
    return outcomes.map((outcome) => outcome ?? (sent.next().value as Outcome));
  }

  /** Take a decision back that was never shown. */
  async discard(id: string): Promise<Outcome> {
    const asked: Schemas["DiscardRequest"] = { id };
    return (await this.send<Schemas["RewardsResponse"]>("POST", "/v1/discards", asked)).outcomes[0]!;
  }

  /** Report all that was shown while the service was away; calls that succeed do so bit by bit. */
  async reportFallbacks(): Promise<Fallbacks> {
    while (this.fallbacks.waiting) await this.reportOldest(this.attempts);
    return this.fallbacks;
  }

  /** What was learnt, in the recipe's words (needs an operator's or a viewer's key). */
  async model(group = 0): Promise<Record<string, unknown>> {
    return this.send("GET", `/v1/model?group=${group}`);
  }

  /** How the agent stands (needs an operator's or a viewer's key). */
  async status(): Promise<Record<string, unknown>> {
    return this.send("GET", "/v1/status");
  }

  /** The ledger (needs an operator's or a viewer's key). */
  async privacy(): Promise<Record<string, unknown>> {
    return this.send("GET", "/v1/privacy");
  }

  /** The answer; or, where every visitor has a default and there is no answer, the defaults. */
  private async orDefault<Answer extends object>(
    path: string,
    body: object,
    asked: Asked[],
    fallbacks: Fallback[] | undefined,
  ): Promise<Answer | Fallback[]> {
    let answer: Answer;
    try {
      answer = await (fallbacks ? this.sendOnce<Answer>(path, body) : this.send<Answer>("POST", path, body));
    } catch (error) {
      if (!fallbacks || !(error instanceof ServiceError) || !error.away) throw error;
      for (const one of asked) this.fallbacks.keep(one);
      return fallbacks.map((one) => ({ ...one, reason: error.message }));
    }
    if (this.fallbacks.waiting) await this.reportSome();
    return answer;
  }

  /** While a visitor waits: one attempt, and none for a second after one that failed. */
  private async sendOnce<Answer>(path: string, body: object): Promise<Answer> {
    if (performance.now() < this.askAgainAt) {
      JSON.stringify(body); // what cannot be sent is refused now, and not when it is reported
      throw new ServiceError(`POST ${path}: not asked: there was no answer less than ${AWAY / 1000} s ago`);
    }
    try {
      return await this.send<Answer>("POST", path, body, 1);
    } catch (error) {
      if (error instanceof ServiceError && error.away) this.askAgainAt = performance.now() + AWAY;
      throw error;
    }
  }

  private async sendRewards(rewards: Schemas["Reward"][]): Promise<Outcome[]> {
    // JSON has no NaN: null in its place would have all of them refused.
    const judged = rewards.filter(({ value }) => rewards.length === 1 || Number.isFinite(value));
    const asked: Schemas["RewardsRequest"] = { rewards: judged };
    const answer = judged.length ? await this.send<Outcomes>("POST", "/v1/rewards", asked) : { outcomes: [] };
    tellRefused("rewards", "reasons" in answer ? answer.reasons : null);
    const outcomes = new Map(judged.map((one, place) => [one, answer.outcomes[place]!]));
    return rewards.map((one) => outcomes.get(one) ?? "refused");
  }

  /** Of what still waits to be reported: the first value counts, in shadow mode. */
  private keepReward(id: string, value: number): Outcome | null {
    const kept = this.fallbacks.get(id);
    if (!kept) return null;
    if (!kept.request) return "discarded";
    if (!Number.isFinite(value)) return "refused";
    if (kept.reward !== null) return "repeated";
    kept.reward = value;
    return "waiting";
  }

  /** One request's worth, if nothing else is at it; what fails is tried again another time. */
  private async reportSome(): Promise<void> {
    if (this.reporting || performance.now() < this.askAgainAt) return;
    this.reporting = true;
    try {
      await this.reportOldest(1);
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
    } finally {
      this.reporting = false;
    }
  }

  private async reportOldest(attempts: number): Promise<void> {
    await this.reportThese(this.fallbacks.oldest(MOST_IDS, MOST_REQUESTS), attempts);
  }

  /** Refused as a whole, half of them at a time: one that cannot be taken holds up no other. */
  private async reportThese(some: [string, Kept][], attempts: number): Promise<void> {
    let outcomes: (Outcome | null)[];
    try {
      outcomes = await (some[0]?.[1].request ? this.follow(some, attempts) : this.tell(some, attempts));
    } catch (error) {
      if (!isRefusal(error)) throw error;
      if (some.length > 1) return this.reportThese(some.slice(0, Math.floor(some.length / 2)), attempts);
      outcomes = [null]; // refused by itself
    }
    this.fallbacks.settle(some.map(([id], place) => [id, outcomes[place]!]));
  }

  private async tell(some: [string, Kept][], attempts: number): Promise<Outcome[]> {
    const asked: Schemas["FallbacksRequest"] = { ids: some.map(([id]) => id) };
    return (await this.send<Outcomes>("POST", "/v1/fallbacks", asked, attempts)).outcomes;
  }

  /** In shadow mode: ask what would have been asked, and send the rewards that came meanwhile. */
  private async follow(some: [string, Kept][], attempts: number): Promise<(Outcome | null)[]> {
    const asked: Schemas["BatchRequest"] = { decisions: some.map(([, { request }]) => request!) };
    const { decisions } = await this.send<Batch>("POST", "/v1/decisions/batch", asked, attempts);
    const taken = some.filter((_, place) => decisions[place]);
    const rewards = taken.flatMap(([id, { reward }]) => (reward === null ? [] : [{ id, value: reward }]));
    try {
      if (rewards.length) await this.sendRewards(rewards);
    } catch (error) {
      if (!isRefusal(error)) throw error; // one alone that is out of range: its decision stands
    }
    return decisions.map((one) => (one ? "recorded" : null));
  }
}

/** Refused for what was sent, and not for who sent it: sending it again does not help. */
function isRefusal(error: unknown): boolean {
  return error instanceof ServiceError && (error.status === 413 || error.status === 422);
}

/** Why one of many was refused: the others' answers are there. */
function tellRefused(rows: string, reasons: Batch["reasons"] | undefined): void {
  reasons?.forEach((reason, place) => {
    if (reason !== null) console.warn(`${rows}[${place}] was refused: ${reason}`);
  });
}

/** As it is sent: with an id, so that asking again is safe. */
function named(visitor: Visitor): Asked {
  return { ...sayable(visitor), id: visitor.id ?? globalThis.crypto.randomUUID() };
}
