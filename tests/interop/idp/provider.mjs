// An identity provider for tests: npm's oidc-provider, with its own pages for
// sign-in and consent, which take any name and password. It keeps everything in
// memory and listens on loopback only.
//
//   node provider.mjs OPTIONS
//
// OPTIONS is JSON, see Options in provider.go. What has happened is under
// /control of the same address, which is no part of OAuth.
import { generateKeyPairSync, randomBytes } from 'node:crypto';
import { createServer } from 'node:http';
import Provider from 'oidc-provider';

const options = JSON.parse(process.argv[2] ?? '{}');
const life = options.life || 300; // of access tokens, in seconds
const scopes = options.scopes ?? ['mcp:read', 'mcp:write'];

const counts = {}; // of what has happened, by name
const grants = []; // token requests in their order: when, grant, client, error
const secrets = new Set(); // what must be in no log

const count = (what) => { counts[what] = (counts[what] ?? 0) + 1; };

const secretNames = ['code', 'code_verifier', 'refresh_token', 'access_token', 'id_token', 'client_secret', 'client_assertion',
  'assertion', 'device_code', 'token', 'registration_access_token', 'subject_token'];

// collect notes what is secret in a request or a reply.
function collect(values) {
  for (const name of secretNames) {
    const value = values?.[name];
    if (typeof value === 'string' && value.length > 8) secrets.add(value);
  }
}

// watch sees each request after it was answered.
async function watch(ctx, next) {
  await next();
  const { oidc } = ctx;
  collect(oidc?.body);
  collect(oidc?.params);
  if (ctx.body && typeof ctx.body === 'object') collect(ctx.body);
  if (ctx.headers.dpop) secrets.add(ctx.headers.dpop);
  const [scheme, credentials] = ctx.headers.authorization?.split(' ') ?? [];
  if (scheme === 'Basic') {
    const [, secret] = Buffer.from(credentials, 'base64').toString().split(':');
    if (secret) secrets.add(credentials).add(decodeURIComponent(secret));
  }
  const location = ctx.response.get('Location');
  if (URL.canParse(location)) collect(Object.fromEntries(new URL(location).searchParams));
  if (oidc?.route && ctx.method !== 'OPTIONS') count(`${oidc.route} ${ctx.status}`);
}

// documents are the metadata documents of clients: nothing is asked of a network.
async function fetchDocument(url) {
  const document = options.documents?.[String(url)];
  if (!document) return new Response('', { status: 404 });
  count('document');
  return Response.json(document);
}

function configuration() {
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const { privateKey: rsa } = generateKeyPairSync('rsa', { modulusLength: 2048 }); // of id tokens: RS256 is what clients expect
  return {
    clients: options.clients ?? [],
    jwks: { keys: [
      { ...privateKey.export({ format: 'jwk' }), kid: 'es256', alg: 'ES256', use: 'sig' },
      { ...rsa.export({ format: 'jwk' }), kid: 'rs256', alg: 'RS256', use: 'sig' },
    ] },
    cookies: { keys: [randomBytes(32).toString('hex')] },
    fetch: fetchDocument,
    ...(options.listed && { scopes: ['openid', 'offline_access', ...scopes] }),
    rotateRefreshToken: true, // every time; a spent one ends all that came of the same sign-in
    ttl: { AccessToken: life, ClientCredentials: life, RefreshToken: 24 * 3600, Grant: 24 * 3600, Session: 3600, Interaction: 600, DeviceCode: 600 },
    extraClientMetadata: { properties: [] },
    features: {
      devInteractions: { enabled: true },
      registration: { enabled: options.registration !== false },
      deviceFlow: { enabled: options.device !== false },
      clientCredentials: { enabled: true },
      introspection: { enabled: true, allowedPolicy: (ctx, client) => client.clientAuthMethod !== 'none' },
      revocation: { enabled: true },
      dPoP: { enabled: true, nonceSecret: randomBytes(32), requireNonce: () => options.nonces === true },
      clientIdMetadataDocument: { enabled: options.documents !== undefined, ack: 'draft-02' },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: (ctx, resource) => ({
          scope: scopes.join(' '), audience: resource, accessTokenTTL: life,
          ...(options.opaque ? { accessTokenFormat: 'opaque' } : { accessTokenFormat: 'jwt', jwt: { sign: { alg: 'ES256' } } }),
        }),
      },
    },
  };
}

function note(ctx, error) {
  const { grant_type: grant = '', client_id: client = ctx.oidc.client?.clientId } = ctx.oidc.params ?? {};
  grants.push({ at: Date.now(), grant, client, error });
  count(error ? `error ${error}` : `grant ${grant}`);
}

function control(req, res) {
  const answers = { '/control/counts': counts, '/control/grants': grants, '/control/secrets': [...secrets] };
  const answer = answers[req.url];
  res.writeHead(answer ? 200 : 404, { 'content-type': 'application/json' }).end(JSON.stringify(answer ?? null));
}

let callback;
const http = createServer((req, res) => (req.url.startsWith('/control/') ? control(req, res) : callback(req, res)));
http.listen(options.port ?? 0, '127.0.0.1', () => {
  const issuer = `http://127.0.0.1:${http.address().port}`;
  const provider = new Provider(issuer, configuration());
  provider.use(watch);
  provider.on('grant.success', (ctx) => note(ctx));
  provider.on('grant.error', (ctx, err) => note(ctx, err.error ?? String(err)));
  provider.on('grant.revoked', () => count('family revoked'));
  provider.on('authorization.success', () => count('authorized'));
  provider.on('server_error', (ctx, err) => console.error('server error:', err));
  callback = provider.callback();
  console.error(`listening url=${issuer}`);
});
process.on('SIGINT', () => process.exit(0));
