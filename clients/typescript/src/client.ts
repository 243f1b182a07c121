/** A small typed client of the decision service. Types are those of `api.ts`, made from its OpenAPI document. */

import type { components } from "./api.js";

type Schemas = components["schemas"];
/** A visitor, and what could be shown. */
export type Visitor = Schemas["DecisionRequest"];
/** What to show, and how it was chosen. */
export type Decision = Schemas["DecisionResponse"];
/** What became of a reward, or of a wish to discard. */
export type Outcome = Schemas["Outcome"];

/** The service refused, could not be reached, or gave an answer that cannot be read. */
export class ServiceError extends Error {
  /**
   * @param status the HTTP status; null if there was no answer.
   * @param details what was wrong with the request, if it was said.
   */
  constructor(
    reason: string,
    readonly status: number | null = null,
    readonly details: Schemas["Problem"]["details"] = null,
  ) {
    super(reason);
    this.name = "ServiceError";
  }
}

export interface Options {
  /** An API key. */
  key: string;
  /** Milliseconds to wait for an answer. */
  timeout?: number;
  /** How often to try. */
  attempts?: number;
}

const AGAIN = [502, 503, 504];

/** Asks a decision service; sends again what got no answer, which changes nothing that was done before. */
export class Client {
  private readonly timeout: number;
  private readonly attempts: number;

  constructor(
    private readonly url: string,
    private readonly options: Options,
  ) {
    this.timeout = options.timeout ?? 5000;
    this.attempts = Math.max(1, options.attempts ?? 4);
  }

  /** Ask which candidate to show (others call it *rank*). */
  async decide(visitor: Visitor = {}): Promise<Decision> {
    return this.send<Decision>("POST", "/v1/decisions", named(visitor));
  }

  /** Ask for up to 1,000 visitors at once. One of many that is refused gets null; one alone throws. */
  async decideMany(visitors: Visitor[]): Promise<(Decision | null)[]> {
    const asked: Schemas["BatchRequest"] = { decisions: visitors.map(named) };
    return (await this.send<Schemas["BatchResponse"]>("POST", "/v1/decisions/batch", asked)).decisions;
  }

  /** Say what a decision was worth; throws if it is out of range. */
  async reward(id: string, value: number): Promise<Outcome> {
    return (await this.rewards([{ id, value }]))[0]!;
  }

  /** Say what up to 1,000 decisions were worth: the outcomes in order. One of many out of range is `refused` alone. */
  async rewards(rewards: Schemas["Reward"][]): Promise<Outcome[]> {
    const asked: Schemas["RewardsRequest"] = { rewards };
    return (await this.send<Schemas["RewardsResponse"]>("POST", "/v1/rewards", asked)).outcomes;
  }

  /** Take a decision back that was never shown. */
  async discard(id: string): Promise<Outcome> {
    const asked: Schemas["DiscardRequest"] = { id };
    return (await this.send<Schemas["RewardsResponse"]>("POST", "/v1/discards", asked)).outcomes[0]!;
  }

  /** Say which visitors, by the ids they were asked for with, were shown a default of your own: counted, no more. */
  async reportFallbacks(ids: string[]): Promise<Outcome[]> {
    const asked: Schemas["FallbacksRequest"] = { ids };
    return (await this.send<Schemas["RewardsResponse"]>("POST", "/v1/fallbacks", asked)).outcomes;
  }

  /** How the agent stands (needs an operator's or a viewer's key). */
  async status(): Promise<Record<string, unknown>> {
    return this.send("GET", "/v1/status");
  }

  /** The ledger (needs an operator's or a viewer's key). */
  async privacy(): Promise<Record<string, unknown>> {
    return this.send("GET", "/v1/privacy");
  }

  private async send<Answer>(method: string, path: string, asked?: object): Promise<Answer> {
    let failure = new ServiceError(`${method} ${path}: not sent`);
    for (let attempt = 0; attempt < this.attempts; attempt++) {
      if (attempt) await new Promise((done) => setTimeout(done, 50 * 4 ** attempt));
      let status: number, text: string;
      try {
        const response = await fetch(new URL(path, this.url), {
          method,
          headers: { authorization: `Bearer ${this.options.key}`, "content-type": "application/json" },
          body: asked === undefined ? null : JSON.stringify(asked),
          redirect: "error", // it would carry the key to another place
          signal: AbortSignal.timeout(this.timeout),
        });
        [status, text] = [response.status, await response.text()];
      } catch (error) {
        failure = new ServiceError(`${method} ${path}: no answer: ${reasonOf(error)}`);
        continue;
      }
      if (status >= 200 && status < 300) return decoded(text, `${method} ${path}`) as Answer;
      failure = refusal(status, text, `${method} ${path}`);
      if (!AGAIN.includes(status)) break;
    }
    throw failure;
  }
}

/** With an id, so that asking again is safe. */
function named(visitor: Visitor): Visitor {
  return { ...visitor, id: visitor.id ?? globalThis.crypto.randomUUID() };
}

function reasonOf(error: unknown): string {
  const cause = error instanceof Error ? (error.cause ?? error) : error;
  return cause instanceof Error ? cause.message || cause.name : String(cause);
}

function decoded(text: string, call: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new ServiceError(`${call}: the answer is not JSON`);
  }
}

function refusal(status: number, text: string, call: string): ServiceError {
  try {
    const problem = JSON.parse(text) as Schemas["Problem"];
    return new ServiceError(`${call}: answered ${status}: ${problem.error}`, status, problem.details ?? null);
  } catch {
    return new ServiceError(`${call}: answered ${status}: ${text.slice(0, 1000)}`, status);
  }
}
