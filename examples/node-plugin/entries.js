// Entries in JavaScript, with nothing but Node: one JSON object a line on two descriptors.
"use strict";
const fs = require("node:fs");
const readline = require("node:readline");

const input = fs.createReadStream(null, { fd: Number(process.env.PERDURE_READ_FD) });
const output = Number(process.env.PERDURE_WRITE_FD);

let number = 0;
const waiting = new Map();
let cancelled = false;

const say = (message) => fs.writeSync(output, JSON.stringify(message) + "\n");

// Say something that is answered: `call` gives what to say when the server calls for something.
const request = (what, parts, call) =>
  new Promise((resolve, reject) => {
    const id = ++number;
    waiting.set(id, { what, resolve, reject, call });
    say({ say: what, id, ...parts });
  });

const step = (name, body, retry) =>
  request("step", retry ? { name, retry } : { name }, async () => ({ say: "did", value: await body() }));
const exported = (type, content, more) => request("export", { type, content, ...more });
// Bytes of any size: the server calls for a piece when it has dealt with the last; an empty one is the end.
const exportedBytes = (pieces, more) => {
  const iterator = pieces[Symbol.asyncIterator] ? pieces[Symbol.asyncIterator]() : pieces[Symbol.iterator]();
  return request("bytes", more, async () => {
    const { value, done } = await iterator.next();
    return { say: "piece", data: done ? "" : value.toString("base64") };
  });
};

const entries = {
  greet: async ({ name = "you" }) => `hello ${name}`,
  report: async () => {
    say({ say: "status", stage: "working", message: "the first part" });
    say({ say: "progress", progress: 0.5, message: "half" });
    say({ say: "log", text: "a line" });
    console.log("printed");
    const text = await exported("text", "a text", { description: "described", key: "text" });
    await exported("json", { a: [1, null] });
    say({ say: "result", items: [text] });
    return null;
  },
  steps: async ({ n = 3 }) => {
    const squares = [];
    for (let i = 0; i < n; i++) squares.push(await step(`square-${i}`, async () => i * i));
    return squares;
  },
  flaky: async () => {
    let tries = 0;
    const body = async () => {
      if (tries++ < 2) throw new Error("not yet");
      return "good";
    };
    return await step("flaky", body, { tries: 3, delay: 0.01 });
  },
  fail: async ({ code = "MINE" }) => {
    const details = { a: 1 };
    throw { code, message: "as you wish", details, retriable: true };
  },
  file: async ({ size = 300_000 }) => {
    const piece = Buffer.from("0123456789abcde\n".repeat(8192));
    const pieces = function* () {
      for (let left = size; left > 0; left -= piece.length) yield piece.subarray(0, left);
    };
    const file = await exportedBytes(pieces(), { description: "a file", mime: "text/plain", key: "file" });
    say({ say: "result", items: [file] });
    return null;
  },
  question: async () => await request("ask", { question: { text: "which?" } }),
  wait: async () => {
    say({ say: "status", stage: "waiting" });
    while (!cancelled) await new Promise((resolve) => setTimeout(resolve, 20));
    throw { cancelled: true };
  },
};

const asError = (error) => ({
  code: error.code || "PLUGIN_ERROR",
  message: String(error.message || ""),
  details: error.details || null,
  retriable: Boolean(error.retriable),
});

const execute = async ({ entry_id, args }) => {
  try {
    say({ say: "return", value: await entries[entry_id](args) });
  } catch (error) {
    say({ say: "raise", error: asError(error), cancelled: Boolean(error.cancelled) });
  }
  process.exit(0);
};

const call = async (id) => {
  const { what, call } = waiting.get(id);
  try {
    say({ id, ...(await call()) });
  } catch (error) {
    say({ say: what === "bytes" ? "piece" : "did", id, error: asError(error) });
  }
};

const answered = (message) => {
  const { resolve, reject } = waiting.get(message.re);
  waiting.delete(message.re);
  if (message.error) reject({ ...message.error, cancelled: message.cancelled });
  else resolve(message.value);
};

const lines = readline.createInterface({ input });
lines.on("line", (line) => {
  const message = JSON.parse(line);
  if (message.do === "start") execute(message);
  else if (message.do === "cancel") cancelled = true;
  else if ("call" in message) call(message.call);
  else if ("re" in message) answered(message);
});
lines.on("close", () => process.exit(0)); // the server is gone
