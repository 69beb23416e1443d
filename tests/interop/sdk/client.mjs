// The script of goclient_test.go on the TypeScript SDK 1.x, for any number of
// clients at once. It gets an array of {to, plan} as JSON in its argument, and
// prints as JSON the array of what became of them: {transcript} or {error}.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { WebSocketClientTransport } from '@modelcontextprotocol/sdk/client/websocket.js';
import {
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  ListRootsRequestSchema,
  LoggingMessageNotificationSchema,
  ProgressNotificationSchema,
  ResourceUpdatedNotificationSchema,
} from '@modelcontextprotocol/sdk/types.js';

const patience = 30_000;
const blob = 'é'.repeat(1 << 19);

function transportTo({ command, url, via }) {
  if (command) return new StdioClientTransport({ command: command[0], args: command.slice(1), stderr: 'inherit', env: process.env });
  if (url.startsWith('ws:')) return new WebSocketClientTransport(new URL(url));
  if (via === 'sse') return new SSEClientTransport(new URL(url));
  return new StreamableHTTPClientTransport(new URL(url));
}

// play runs the script and returns what the client saw.
async function play({ to, plan }) {
  const name = `client-${to.n}.`;
  const out = { elicited: [], sampled: [], tools: [], pages: 0, resources: [], templates: [], prompts: [] };
  const logs = [];
  const updated = [];
  const progress = {};
  let changed = () => {};

  function note(list, item) {
    list.push(item);
    changed();
  }

  // until waits for a state of what the handlers collect.
  async function until(what, ok) {
    const end = AbortSignal.timeout(patience);
    while (!ok()) {
      await new Promise((resolve, reject) => {
        changed = resolve;
        end.onabort = () => reject(new Error(`${what} did not come`));
      });
    }
  }

  const client = new Client(
    { name: 'interop', version: '1' },
    { capabilities: { roots: { listChanged: true }, sampling: {}, elicitation: {} } },
  );
  client.setRequestHandler(ElicitRequestSchema, (r) => {
    note(out.elicited, r.params.message);
    return { action: 'accept', content: { name, username: name } };
  });
  client.setRequestHandler(CreateMessageRequestSchema, (r) => {
    note(out.sampled, r.params.messages[0].content.text);
    const text = `Hello from 👨‍👩‍👧 ${name}`;
    return { model: 'test-model', role: 'assistant', content: { type: 'text', text }, stopReason: 'endTurn' };
  });
  client.setRequestHandler(ListRootsRequestSchema, () => ({ roots: [{ uri: `file:///srv/${name}`, name: 'data' }] }));
  client.setNotificationHandler(LoggingMessageNotificationSchema, (n) => {
    note(logs, `${n.params.level}: ${n.params.data}`);
  });
  client.setNotificationHandler(ResourceUpdatedNotificationSchema, (n) => {
    note(updated, n.params.uri);
  });
  // The SDK's own onprogress forgets a notification that arrives together with
  // the result, so the script keeps its own books.
  client.setNotificationHandler(ProgressNotificationSchema, (n) => {
    note((progress[n.params.progressToken] ??= []), `${n.params.progress}/${n.params.total}`);
  });

  // call returns the whole result as text.
  async function call(what, progressToken, signal) {
    const params = { name: what.name, arguments: what.args };
    if (progressToken) params._meta = { progressToken };
    return JSON.stringify(await client.callTool(params, undefined, { timeout: patience, signal }));
  }

  // started waits for the first progress of a call.
  const started = (token) => until('progress', () => progress[token]?.length > 0);

  async function pages(list, key) {
    const all = [];
    let cursor;
    do {
      const page = await list.call(client, { cursor });
      all.push(...page[key].map((x) => JSON.stringify(x)));
      cursor = page.nextCursor;
      if (key === 'tools') out.pages++;
    } while (cursor);
    return all;
  }

  // echo sends a megabyte there and back.
  async function echo() {
    const args = Object.fromEntries(Object.entries(plan.echo.args).map(([k, v]) => [k, v.replaceAll('{blob}', blob)]));
    const text = await call({ name: plan.echo.name, args });
    out.echo = text.replaceAll(blob, '{blob}');
    if (out.echo.length > 1 << 10) throw new Error(`of a megabyte came back ${text.length} characters that are something else`);
  }

  const matching = () => logs.filter((l) => l.includes(plan.logMatch));
  const takeLogs = () => until('log messages', () => matching().length >= plan.logs);

  async function subscribe() {
    await client.subscribeResource({ uri: plan.subscribe });
    if (plan.touch) await call(plan.touch);
    await until('the update', () => updated.includes(plan.subscribe));
    if (!plan.log) await takeLogs();
    if (plan.touch?.name === 'toggle-subscriber-updates') await call(plan.touch);
    await client.unsubscribeResource({ uri: plan.subscribe });
  }

  // cancel gives a call up at its first progress; the session must go on.
  async function cancel() {
    const stop = new AbortController();
    const result = call(plan.slow, 'cancel', stop.signal);
    result.catch(() => {});
    await started('cancel');
    stop.abort(new Error('given up'));
    await result.then(
      () => { throw new Error('the cancelled call was answered'); },
      (err) => { if (!String(err.message).includes('given up')) throw err; },
    );
    out.cancelled = true;
    if (plan.cancelled) out.told = await call(plan.cancelled);
    await client.ping();
  }

  // drop cuts the connections below a call at its first progress.
  async function drop() {
    const result = call(plan.slow, 'drop');
    if (to.cut) {
      await started('drop');
      await fetch(to.cut);
    }
    out.resumed = await result;
    await until('all progress', () => progress.drop.length >= plan.slowSteps);
  }

  const transport = transportTo(to);
  const step = (what, done) => done.catch((err) => { throw new Error(what, { cause: err }); });
  await step('initialize', client.connect(transport));
  out.version = transport.protocolVersion ?? '';
  out.server = client.getServerVersion().name;
  out.caps = JSON.stringify(client.getServerCapabilities());
  out.tools = await step('list tools', pages(client.listTools, 'tools'));
  if (client.getServerCapabilities().resources) {
    out.resources = await step('list resources', pages(client.listResources, 'resources'));
    out.templates = await step('list templates', pages(client.listResourceTemplates, 'resourceTemplates'));
    out.prompts = await step('list prompts', pages(client.listPrompts, 'prompts'));
  }
  out.result = await step('call with progress', call(plan.progress, 'progress'));
  await until('progress', () => progress.progress?.length >= plan.steps);
  if (plan.echo) await step('a megabyte', echo());
  if (plan.logs) await step('log', client.setLoggingLevel('debug'));
  if (plan.log) {
    await step('log', call(plan.log));
    await takeLogs();
  }
  if (plan.elicit) out.elicit = await step('elicit', call(plan.elicit));
  if (plan.sample) out.sample = await step('sample', call(plan.sample));
  if (plan.roots) out.roots = await step('roots', call(plan.roots));
  if (plan.subscribe) await step('subscribe', subscribe());
  await step('cancel', cancel());
  if (to.drop) await step('drop', drop());
  if (transport.terminateSession) await step('end the session', transport.terminateSession());
  await client.close();
  // What came twice or should not have come at all is in here, too.
  out.progress = progress.progress;
  out.dropped = progress.drop;
  if (plan.logs) out.logs = matching();
  out.updated = [...new Set(updated)].sort();
  return out;
}

const jobs = JSON.parse(process.argv[2]);
const ended = await Promise.allSettled(jobs.map(play));
const told = (err) => (err?.cause ? `${err.message}: ${told(err.cause)}` : String(err));
console.log(JSON.stringify(ended.map((e) => (e.status === 'fulfilled' ? { transcript: e.value } : { error: told(e.reason) }))));
// A client that failed may still have something open.
if (ended.some((e) => e.status === 'rejected')) process.exit(0);
