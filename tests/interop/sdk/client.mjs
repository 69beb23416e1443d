// The script of goclient_test.go on the TypeScript SDK 1.x. It gets target and
// plan as JSON in its argument, and prints the transcript as JSON.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import {
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  ListRootsRequestSchema,
  LoggingMessageNotificationSchema,
  ProgressNotificationSchema,
  ResourceUpdatedNotificationSchema,
} from '@modelcontextprotocol/sdk/types.js';

const { to, plan } = JSON.parse(process.argv[2]);
const patience = 30_000;
const out = { elicited: [], sampled: [], tools: [], resources: [], templates: [], prompts: [], logs: [] };
const logs = [];
const updated = [];
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
  return { action: 'accept', content: { name: 'Ada', username: 'ada' } };
});
client.setRequestHandler(CreateMessageRequestSchema, (r) => {
  note(out.sampled, r.params.messages[0].content.text);
  return { model: 'test-model', role: 'assistant', content: { type: 'text', text: 'Hello, 👨‍👩‍👧!' }, stopReason: 'endTurn' };
});
client.setRequestHandler(ListRootsRequestSchema, () => ({ roots: [{ uri: 'file:///srv/data', name: 'data' }] }));
client.setNotificationHandler(LoggingMessageNotificationSchema, (n) => {
  note(logs, `${n.params.level}: ${n.params.data}`);
});
client.setNotificationHandler(ResourceUpdatedNotificationSchema, (n) => {
  note(updated, n.params.uri);
});

// The SDK's own onprogress forgets a notification that arrives together with
// the result, so the script keeps its own books.
const progress = {};
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
  } while (cursor);
  return all;
}

const matching = () => logs.filter((l) => l.includes(plan.logMatch));

async function takeLogs() {
  await until('log messages', () => matching().length >= plan.logs);
  out.logs = matching();
}

async function subscribe() {
  await client.subscribeResource({ uri: plan.subscribe });
  if (plan.touch) await call(plan.touch);
  await until('the update', () => updated.includes(plan.subscribe));
  out.updated = plan.subscribe;
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
  out.dropped = progress.drop;
}

const transport = to.url
  ? new StreamableHTTPClientTransport(new URL(to.url))
  : new StdioClientTransport({ command: to.command[0], args: to.command.slice(1), stderr: 'inherit', env: process.env });
await client.connect(transport);
out.version = transport.protocolVersion ?? '';
out.server = client.getServerVersion().name;
out.caps = JSON.stringify(client.getServerCapabilities());
out.tools = await pages(client.listTools, 'tools');
if (client.getServerCapabilities().resources) {
  out.resources = await pages(client.listResources, 'resources');
  out.templates = await pages(client.listResourceTemplates, 'resourceTemplates');
  out.prompts = await pages(client.listPrompts, 'prompts');
}
out.result = await call(plan.progress, 'progress');
await until('progress', () => progress.progress?.length >= plan.steps);
out.progress = progress.progress;
if (plan.logs) await client.setLoggingLevel('debug');
if (plan.log) {
  await call(plan.log);
  await takeLogs();
}
if (plan.elicit) out.elicit = await call(plan.elicit);
if (plan.sample) out.sample = await call(plan.sample);
if (plan.roots) out.roots = await call(plan.roots);
if (plan.subscribe) await subscribe();
await cancel();
if (to.drop) await drop();
if (transport.terminateSession) await transport.terminateSession();
await client.close();
console.log(JSON.stringify(out));
