// A server on the TypeScript SDK 2.x with all that the conformance suite asks
// of a server, by the suite's descriptions of its scenarios.
//
//   node everything.mjs [stdio | legacy | http]      see serve.mjs
//
// What it asks the user, it asks in the words of 2026-07-28; on a connection of
// an older revision, the SDK makes real requests of that.
import { randomBytes } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import {
  acceptedContent,
  CLIENT_CAPABILITIES_META_KEY,
  createRequestStateCodec,
  fromJsonSchema,
  inputRequired,
  McpServer,
  ResourceTemplate,
} from '@modelcontextprotocol/server';
import { serve } from '../peers/serve.mjs';

const image = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==';
const audio = 'UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=';

const states = createRequestStateCodec({ key: randomBytes(32) });

const text = (text) => ({ type: 'text', text });
const says = (words) => ({ content: [text(words)] });
const picture = { type: 'image', data: image, mimeType: 'image/png' };
const attachment = (uri) => ({ type: 'resource', resource: { uri, mimeType: 'text/plain', text: `This is ${uri}.` } });
const object = (properties, required = []) => ({ type: 'object', properties, required });
const string = { type: 'string' };

// What a handler may ask for, and whether that has been answered.
const form = (message, requestedSchema) => ({
  request: inputRequired.elicit({ message, requestedSchema }),
  answered: (all, key) => requestedSchema.required.every((name) => acceptedContent(all, key)?.[name] !== undefined),
});
const completion = (prompt, maxTokens = 100) => ({
  request: inputRequired.createMessage({ messages: [{ role: 'user', content: text(prompt) }], maxTokens }),
  answered: (all, key) => all?.[key]?.content !== undefined,
});
const roots = { request: inputRequired.listRoots(), answered: (all, key) => Array.isArray(all?.[key]?.roots) };
const name = form('What is your name?', object({ name: string }, ['name']));
const confirmation = form('Please confirm', object({ ok: { type: 'boolean' } }, ['ok']));

const requests = (questions) => Object.fromEntries(Object.entries(questions).map(([key, q]) => [key, q.request]));

// ask gives the handler that asks, once and everything at once, and then says
// what was answered. With a state, what it knows travels there and back.
function ask(questions, { state, answer = says } = {}) {
  return async (args, ctx) => {
    const asked = typeof questions === 'function' ? questions(args) : questions;
    const all = ctx.mcpReq.inputResponses;
    if (Object.entries(asked).every(([key, q]) => q.answered(all, key))) {
      return answer(JSON.stringify(Object.keys(asked).map((key) => all[key])));
    }
    const requestState = state && (await states.mint({ state }));
    return inputRequired({ inputRequests: requests(asked), ...(state && { requestState }) });
  };
}

// rounds asks one question after the other.
async function rounds(_args, ctx) {
  const steps = [
    { step1: form('Step 1: What is your name?', object({ name: string }, ['name'])) },
    { step2: form('Step 2: What is your favorite color?', object({ color: string }, ['color'])) },
  ];
  const round = ctx.mcpReq.requestState()?.round ?? 0;
  if (round === steps.length) return says('Both were answered.');
  return inputRequired({ inputRequests: requests(steps[round]), requestState: await states.mint({ round: round + 1 }) });
}

// askWhatIsDeclared asks for all that the client says it can do.
const askWhatIsDeclared = (server) => (_args, ctx) => {
  if (ctx.mcpReq.inputResponses !== undefined) return says('All was answered.');
  const declared = ctx.mcpReq.envelope?.[CLIENT_CAPABILITIES_META_KEY] ?? server.server.getClientCapabilities();
  const all = { elicitation: name, sampling: completion('Generate a greeting'), roots };
  const able = Object.fromEntries(Object.entries(all).filter(([capability]) => declared[capability]));
  if (Object.keys(able).length === 0) return says('The client can do nothing.');
  return inputRequired({ inputRequests: requests(able) });
};

async function progress(_args, ctx) {
  const progressToken = ctx.mcpReq._meta?.progressToken;
  for (const at of progressToken === undefined ? [] : [0, 50, 100]) {
    await ctx.mcpReq.notify({ method: 'notifications/progress', params: { progressToken, progress: at, total: 100 } });
    await pause(50);
  }
  return says(String(progressToken));
}

async function logging(_args, ctx) {
  for (const step of ['started', 'processing', 'completed']) {
    await ctx.mcpReq.log('info', `Tool ${step}`);
    await pause(50);
  }
  return says('done');
}

const withDefaults = object({
  name: { ...string, default: 'John Doe' },
  age: { type: 'integer', default: 30 },
  score: { type: 'number', default: 95.5 },
  status: { ...string, enum: ['active', 'inactive', 'pending'], default: 'active' },
  verified: { type: 'boolean', default: true },
});
const titled = ['First', 'Second', 'Third'].map((title, i) => ({ const: `value${i + 1}`, title }));
const withEnums = object({
  untitledSingle: { ...string, enum: ['option1', 'option2', 'option3'] },
  titledSingle: { ...string, oneOf: titled },
  legacyEnum: { ...string, enum: ['opt1', 'opt2', 'opt3'], enumNames: ['Option One', 'Option Two', 'Option Three'] },
  untitledMulti: { type: 'array', items: { ...string, enum: ['option1', 'option2', 'option3'] } },
  titledMulti: { type: 'array', items: { anyOf: titled } },
});

// Any answer to a form will do that may be left empty.
const optional = (message, schema) => ({
  ...form(message, schema),
  answered: (all, key) => all?.[key]?.action !== undefined,
});

const rich2020 = {
  $schema: 'https://json-schema.org/draft/2020-12/schema',
  type: 'object',
  $defs: { address: { $anchor: 'addressDef', ...object({ street: string, city: string }) } },
  properties: {
    name: string,
    address: { $ref: '#/$defs/address' },
    contactMethod: { ...string, enum: ['phone', 'email'] },
    phone: string,
    email: string,
  },
  allOf: [{ anyOf: [{ required: ['phone'] }, { required: ['email'] }] }],
  if: { properties: { contactMethod: { const: 'phone' } }, required: ['contactMethod'] },
  then: { required: ['phone'] },
  else: { required: ['email'] },
  additionalProperties: false,
};

function addTools(server, notify) {
  const add = (name, run, inputSchema = object({})) =>
    server.registerTool(name, { description: `For the conformance suite: ${name}.`, inputSchema: fromJsonSchema(inputSchema) }, run);

  add('test_simple_text', () => says('This is a simple text response for testing.'));
  add('test_image_content', () => ({ content: [picture] }));
  add('test_audio_content', () => ({ content: [{ type: 'audio', data: audio, mimeType: 'audio/wav' }] }));
  add('test_embedded_resource', () => ({ content: [attachment('test://embedded-resource')] }));
  add('test_multiple_content_types', () => ({ content: [text('Text:'), picture, attachment('test://mixed-content-resource')] }));
  add('test_error_handling', () => {
    throw new Error('This tool intentionally returns an error for testing');
  });
  add('test_tool_with_progress', progress);
  add('test_tool_with_logging', logging);
  add('test_reconnection', async () => {
    await pause(100);
    return says('Here I am again.');
  });
  add('json_schema_2020_12_tool', (args) => says(JSON.stringify(args)), rich2020);
  add('test_x_mcp_header', (args) => says(`region=${args.region}`), object({ region: { ...string, 'x-mcp-header': 'Region' }, level: { type: 'integer' } }));

  add('test_sampling', ask(({ prompt }) => ({ answer: completion(prompt) })), object({ prompt: string }, ['prompt']));
  const username = object({ username: string }, ['username']);
  add('test_elicitation', ask(({ message }) => ({ user: optional(message, username) })), object({ message: string }, ['message']));
  add('test_elicitation_sep1034_defaults', ask({ user: optional('Please review the defaults', withDefaults) }));
  add('test_elicitation_sep1330_enums', ask({ user: optional('Please choose', withEnums) }));
  add('test_missing_capability', ask({ answer: completion('Reply with one word') }));

  add('test_streaming_elicitation', () => says('A result, and no requests.'));
  add('test_logging_tool', async (_args, ctx) => {
    await ctx.mcpReq.log('info', 'for those who have asked for it');
    return says('logged');
  });
  add('test_trigger_tool_change', () => {
    notify ? notify.toolsChanged() : server.sendToolListChanged();
    return says('told');
  });
  add('test_trigger_prompt_change', () => {
    notify ? notify.promptsChanged() : server.sendPromptListChanged();
    return says('told');
  });

  add('test_input_required_result_elicitation', ask({ user_name: name }));
  add('test_input_required_result_sampling', ask({ capital_question: completion('What is the capital of France?') }));
  add('test_input_required_result_list_roots', ask({ client_roots: roots }));
  add('test_input_required_result_request_state', ask({ confirm: confirmation }, { state: 'confirm' }));
  add('test_input_required_result_tampered_state', ask({ confirm: confirmation }, { state: 'tampered' }));
  const several = { user_name: name, greeting: completion('Generate a greeting', 50), client_roots: roots };
  add('test_input_required_result_multiple_inputs', ask(several, { state: 'several' }));
  add('test_input_required_result_multi_round', rounds);
  add('test_input_required_result_capabilities', askWhatIsDeclared(server));
}

function addResources(server) {
  const add = (name, uri, mimeType, contents) =>
    server.registerResource(name, uri, { mimeType }, (at, variables) => ({
      contents: [{ uri: String(at), mimeType, ...contents(variables) }],
    }));
  add('static-text', 'test://static-text', 'text/plain', () => ({ text: 'This is the content of the static text resource.' }));
  add('static-binary', 'test://static-binary', 'image/png', () => ({ blob: image }));
  add('watched-resource', 'test://watched-resource', 'text/plain', () => ({ text: 'Watched.' }));
  add('template', new ResourceTemplate('test://template/{id}/data', { list: undefined }), 'application/json', ({ id }) => ({
    text: JSON.stringify({ id, templateTest: true, data: `Data for ID: ${id}` }),
  }));
  server.server.setRequestHandler('resources/subscribe', () => ({}));
  server.server.setRequestHandler('resources/unsubscribe', () => ({}));
}

function addPrompts(server) {
  const messages = (...content) => ({ messages: content.map((content) => ({ role: 'user', content })) });
  const add = (name, run, args) => {
    const argsSchema = args && fromJsonSchema(object(Object.fromEntries(args.map((arg) => [arg, string])), args));
    // Without a schema the callback gets its context alone.
    server.registerPrompt(name, { description: `For the conformance suite: ${name}.`, argsSchema }, args ? run : (ctx) => run({}, ctx));
  };
  add('test_simple_prompt', () => messages(text('This is a simple prompt for testing.')));
  add('test_prompt_with_arguments', ({ arg1, arg2 }) => messages(text(`arg1='${arg1}', arg2='${arg2}'`)), ['arg1', 'arg2']);
  add('test_prompt_with_embedded_resource', ({ resourceUri }) => messages(attachment(resourceUri), text('Please process it.')), ['resourceUri']);
  add('test_prompt_with_image', () => messages(picture, text('Please look at it.')));
  const context = form('What context should the prompt use?', object({ context: string }, ['context']));
  add('test_input_required_result_prompt', ask({ user_context: context }, { answer: (words) => messages(text(words)) }));
}

serve((notify) => {
  const server = new McpServer(
    { name: 'everything', version: '1.0.0' },
    {
      capabilities: {
        tools: { listChanged: true },
        prompts: { listChanged: true },
        resources: { listChanged: true, subscribe: true },
        logging: {},
        completions: {},
      },
      requestState: { verify: states.verify },
    },
  );
  addTools(server, notify);
  addResources(server);
  addPrompts(server);
  server.server.setRequestHandler('completion/complete', () => ({ completion: { values: [], total: 0, hasMore: false } }));
  return server;
}, process.argv[2]);
