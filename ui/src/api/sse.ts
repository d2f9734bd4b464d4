// Server-sent events over fetch: unlike EventSource it shows heartbeats, refusals and the moment of the last sign of life.

import { authorization } from "./token";

export interface ServerEvent {
  id: string;
  type: string;
  data: string;
}

/** Turns pieces of the stream into events. `id` is the last one seen, as the standard has it. */
export class Parser {
  #rest = "";
  #id = "";
  #type = "";
  #data: string[] = [];

  feed(piece: string): ServerEvent[] {
    const lines = (this.#rest + piece).split("\n");
    this.#rest = lines.pop() ?? "";
    return lines.flatMap((line) => this.#read(line.replace(/\r$/, "")));
  }

  #read(line: string): ServerEvent[] {
    if (line === "") {
      return this.#dispatch();
    }
    const at = line.indexOf(":");
    const field = at < 0 ? line : line.slice(0, at);
    const value = at < 0 ? "" : line.slice(at + 1).replace(/^ /, "");
    if (field === "data") {
      this.#data.push(value);
    } else if (field === "event") {
      this.#type = value;
    } else if (field === "id") {
      this.#id = value;
    }
    return [];
  }

  #dispatch(): ServerEvent[] {
    const [type, data] = [this.#type || "message", this.#data];
    [this.#type, this.#data] = ["", []];
    return data.length > 0 ? [{ id: this.#id, type, data: data.join("\n") }] : [];
  }
}

/**
 * Reads one stream to its end; `heard` is called on every piece, heartbeats too. Rejects where the stream is refused
 * or breaks off.
 */
export async function listen(
  path: string,
  lastId: string,
  signal: AbortSignal,
  heard: (events: ServerEvent[]) => void,
): Promise<void> {
  const headers: Record<string, string> = { Accept: "text/event-stream", ...authorization() };
  if (lastId) {
    headers["Last-Event-ID"] = lastId;
  }
  const answer = await fetch(path, { headers, signal, cache: "no-store", redirect: "error" });
  if (!answer.ok || !answer.body) {
    throw new Error(`the stream was answered ${answer.status}`);
  }
  const parser = new Parser();
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  heard([]);
  for (;;) {
    const { done, value } = await reader.read();
    if (done) {
      return;
    }
    heard(parser.feed(value));
  }
}
