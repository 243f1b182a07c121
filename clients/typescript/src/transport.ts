/** How requests travel: plain `fetch`, tried again where that helps. */

import type { components } from "./api.js";

type Problem = components["schemas"]["Problem"];

/** The service refused, could not be reached, or gave an answer that cannot be read. */
export class ServiceError extends Error {
  /**
   * @param status the HTTP status; null if there was no answer.
   * @param details what was wrong with the request, if it was said.
   */
  constructor(
    reason: string,
    readonly status: number | null = null,
    readonly details: Problem["details"] = null,
  ) {
    super(reason);
    this.name = "ServiceError";
  }

  /** Whether the service could not answer, rather than refused: asking later may help. */
  get away(): boolean {
    return this.status === null || this.status >= 500;
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

/** Sends requests, with a key. */
export class Transport {
  private readonly timeout: number;
  protected readonly attempts: number;

  /** @param url of the service; what a proxy has put before its paths stays. */
  constructor(
    private readonly url: string,
    private readonly options: Options,
  ) {
    this.timeout = options.timeout ?? 5000;
    this.attempts = Math.max(1, options.attempts ?? 4);
  }

  protected async send<Answer>(method: string, path: string, asked?: object, attempts = this.attempts): Promise<Answer> {
    let failure = new ServiceError(`${method} ${path}: not sent`);
    const body = asked === undefined ? null : JSON.stringify(asked); // what cannot be sent is no absence of the service
    for (let attempt = 0; attempt < attempts; attempt++) {
      if (attempt) await new Promise((done) => setTimeout(done, 50 * 4 ** attempt));
      let status: number, text: string;
      try {
        const response = await fetch(this.url.replace(/\/*$/, "") + path, {
          method,
          headers: { authorization: `Bearer ${this.options.key}`, "content-type": "application/json" },
          body,
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
    const problem = JSON.parse(text) as Problem;
    return new ServiceError(`${call}: answered ${status}: ${problem.error}`, status, problem.details ?? null);
  } catch {
    return new ServiceError(`${call}: answered ${status}: ${text.slice(0, 1000)}`, status);
  }
}
