// What node programs ask of a system, as a test file for `node --test`; one test fails and one is skipped on purpose.
import { test } from 'node:test';
import assert from 'node:assert/strict';
import { mkdtemp, writeFile, readFile, rm, watch } from 'node:fs/promises';
import { createServer } from 'node:http';
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { Worker } from 'node:worker_threads';
import { lookup } from 'node:dns/promises';
import { gzipSync, gunzipSync } from 'node:zlib';
import { createHash, generateKeyPairSync, randomBytes } from 'node:crypto';
import os from 'node:os';
import path from 'node:path';
test('files', async () => {
  const top = await mkdtemp(path.join(os.tmpdir(), 'x-'));
  await writeFile(path.join(top, 'f'), 'text');
  assert.equal(await readFile(path.join(top, 'f'), 'utf8'), 'text');
  await rm(top, { recursive: true });
});
test('http on loopback', async () => {
  const server = createServer((q, s) => s.end(q.url)).listen(0, '127.0.0.1');
  await new Promise((done) => server.once('listening', done));
  const body = await (await fetch(`http://127.0.0.1:${server.address().port}/p`)).text();
  assert.equal(body, '/p');
  server.close();
});
test('children', async () => {
  const { stdout } = await promisify(execFile)(process.execPath, ['-p', '6*7']);
  assert.equal(stdout, '42\n');
});
test('workers', async () => {
  const worker = new Worker('require("worker_threads").parentPort.postMessage(7)', { eval: true });
  assert.equal(await new Promise((done) => worker.once('message', done)), 7);
});
test('names', async () => assert.ok(['127.0.0.1', '::1'].includes((await lookup('localhost')).address)));
test('watching', async () => {
  const top = await mkdtemp(path.join(os.tmpdir(), 'w-'));
  const stop = new AbortController();
  const seen = (async () => { for await (const e of watch(top, { signal: stop.signal })) return e.filename; })();
  await writeFile(path.join(top, 'f'), '');
  assert.equal(await seen, 'f');
});
test('machine code', () => {
  const wasm = new Uint8Array([0,97,115,109,1,0,0,0,1,7,1,96,2,127,127,1,127,3,2,1,0,7,7,1,3,97,100,100,0,0,10,9,1,7,0,32,0,32,1,106,11]);
  assert.equal(new WebAssembly.Instance(new WebAssembly.Module(wasm)).exports.add(40, 2), 42);
  let n = 0; for (let i = 0; i < 1e6; i++) n += i % 7; assert.equal(n, 2999997);
});
test('crypto and zlib', () => {
  const data = randomBytes(1 << 16);
  assert.deepEqual(gunzipSync(gzipSync(data)), data);
  assert.equal(createHash('sha256').update('').digest('hex').slice(0, 8), 'e3b0c442');
  generateKeyPairSync('ed25519');
});
test('a failing test', { todo: true }, () => assert.equal(1, 2));
test('a skipped test', { skip: 'why' }, () => {});
