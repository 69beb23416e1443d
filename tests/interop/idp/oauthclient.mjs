// A client on the TypeScript SDK 2.x with the SDK's own authorization:
//
//   node oauthclient.mjs URL TOOL ARGUMENTS
//
// It writes the address for a person to stdout, takes the one that the browser ended
// at from stdin, and writes what the tool answers, each as a line.
import { createInterface } from 'node:readline/promises';
import { Client, StreamableHTTPClientTransport, UnauthorizedError } from '@modelcontextprotocol/client';

const [url, tool, args] = process.argv.slice(2);
const stored = {};
const authProvider = {
  redirectUrl: 'http://127.0.0.1:9/callback',
  clientMetadata: {
    client_name: 'TypeScript', redirect_uris: ['http://127.0.0.1:9/callback'], application_type: 'native', token_endpoint_auth_method: 'none',
    grant_types: ['authorization_code', 'refresh_token'], response_types: ['code'],
  },
  state: () => (stored.state ??= crypto.randomUUID()),
  clientInformation: () => stored.client,
  saveClientInformation: (client) => { stored.client = client; },
  tokens: () => stored.tokens,
  saveTokens: (tokens) => { stored.tokens = tokens; },
  redirectToAuthorization: (address) => console.log(String(address)),
  saveCodeVerifier: (verifier) => { stored.verifier = verifier; },
  codeVerifier: () => stored.verifier,
};
const connect = async () => {
  const client = new Client({ name: 'typescript', version: '1' });
  const transport = new StreamableHTTPClientTransport(new URL(url), { authProvider });
  try {
    await client.connect(transport);
  } catch (err) {
    if (!(err instanceof UnauthorizedError)) throw err;
    const input = createInterface({ input: process.stdin });
    const [end] = await Array.fromAsync((async function* first() { for await (const line of input) { yield line; return; } })());
    await transport.finishAuth(new URL(end).searchParams);
    return connect();
  }
  return client;
};
const client = await connect();
console.log(JSON.stringify(await client.callTool({ name: tool, arguments: JSON.parse(args) })));
await client.close();
process.exit(0);
