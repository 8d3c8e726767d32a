// Opens a trace in the trace processor of Perfetto's UI, and prints what queries say as JSON.
//
//     node perfetto.js FOLDER TRACE QUERY...
//
// FOLDER has the UI's engine_bundle.js, which is made for a browser's worker: this is one.
"use strict";
const fs = require("fs");
const path = require("path");

const [folder, trace, ...queries] = process.argv.slice(2);
const own = process;
own.on("uncaughtException", (error) => { fs.writeSync(2, `${error}`.slice(0, 500)); own.exit(1); });
const read = (url) => fs.readFileSync(path.join(folder, String(url).split("/").pop()));

globalThis.self = globalThis;
globalThis.WorkerGlobalScope = class {};
globalThis.location = { href: "http://localhost/engine_bundle.js" };
globalThis.XMLHttpRequest = class {
  open(method, url) { this.data = read(url); }
  send() { this.status = 200; this.response = new Uint8Array(this.data).buffer; this.onload?.(); }
};
globalThis.fetch = async (url) =>
  new Response(read(url), { headers: { "Content-Type": "application/wasm" } });
console.log = console.warn = console.error = () => {};
delete globalThis.process; // the bundle refuses to run in Node

// Protocol buffers, as far as TraceProcessorRpc needs them.
const varint = (n) => { const out = []; while (n > 127) { out.push((n % 128) | 128); n = Math.floor(n / 128); } return Buffer.from([...out, n]); };
const bytes = (field, data) => Buffer.concat([varint(field * 8 + 2), varint(data.length), data]);
const number = (field, value) => Buffer.concat([varint(field * 8), varint(value)]);
let sent = 0;
const request = (method, ...fields) => bytes(1, Buffer.concat([number(1, sent++), number(2, method), ...fields]));
function* fields(data) {
  let at = 0;
  const next = () => { let value = 0n, shift = 0n, one; do { one = data[at++]; value |= BigInt(one & 127) << shift; shift += 7n; } while (one & 128); return BigInt.asIntN(64, value); };
  while (at < data.length) {
    const key = Number(next()), kind = key & 7, field = key >> 3;
    if (kind === 0) yield [field, next()];
    else if (kind === 2) { const size = Number(next()); yield [field, data.subarray(at, at + size)]; at += size; }
    else { at += kind === 1 ? 8 : 4; yield [field, null]; }
  }
}
const of = (data, wanted) => [...fields(data)].filter(([field]) => field === wanted).map(([, value]) => value);
function numbers(data) { // packed varints
  const out = []; let value = 0n, shift = 0n;
  for (const one of data) { value |= BigInt(one & 127) << shift; shift += 7n; if (!(one & 128)) { out.push(Number(BigInt.asIntN(64, value))); value = shift = 0n; } }
  return out;
}

const answers = [];
const errors = [];
function receive(data) {
  for (const message of of(data, 1)) {
    for (const text of of(message, 5)) errors.push(String(text));
    for (const result of of(message, 201)) errors.push(...of(result, 2).map(String));
    for (const result of of(message, 203)) {
      errors.push(...of(result, 2).map(String));
      const names = of(result, 1).map(String);
      if (names.length) answers.push([]);
      for (const batch of of(result, 3)) {
        const cells = of(batch, 1).flatMap((one) => [...one]);
        const ints = of(batch, 2).flatMap(numbers);
        const texts = of(batch, 5).flatMap((one) => String(one).split("\0"));
        answers.at(-1).push(...cells.map((kind) => (kind === 2 ? ints.shift() : kind === 4 ? texts.shift() : null)));
      }
    }
  }
}

(0, eval)(read("engine_bundle.js").toString());
const port = { postMessage: (data) => receive(Buffer.from(data)) };
globalThis.onmessage({ data: port });
const say = (data) => port.onmessage({ data: new Uint8Array(data) });

setTimeout(() => { // the module is compiled above, and begins after that
  const data = fs.readFileSync(trace);
  for (let at = 0; at < data.length; at += 1 << 20)
    say(request(1, bytes(101, data.subarray(at, at + (1 << 20)))));
  say(request(2));
  for (const query of queries) say(request(3, bytes(103, bytes(1, Buffer.from(query)))));
  fs.writeSync(1, JSON.stringify({ errors: errors.filter(Boolean), answers }));
  own.exit(0);
}, 100);
