// Node's fetch through the proxy, by undici's ProxyAgent, and with a base URL as it is.
import { createHash, randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

// NODE_PATH says where it is: `require` heeds that, `import` does not.
const { ProxyAgent, request } = createRequire(import.meta.url)("undici");
const { PROXY, PROXY_ANONYMOUS, BASE, GRANT, KEY, CA, HOST, OTHER, DENIED, SIZE } = process.env;
const size = Number(SIZE);
const sha256 = (bytes) => createHash("sha256").update(bytes).digest("hex");

function same(name, have, want) {
  if (have !== want) throw new Error(`${name}: ${have} is not ${want}`);
  console.log("ok", name);
}

/** undici takes the proof apart from the address. It makes a tunnel for plain HTTP too: that is a rule's to allow. */
function agent(proxy) {
  const url = new URL(proxy);
  const token = url.username && `Basic ${Buffer.from(`${url.username}:${url.password}`).toString("base64")}`;
  return new ProxyAgent({ uri: url.origin, token: token || undefined, requestTls: { ca: readFileSync(CA) } });
}

const dispatcher = agent(PROXY);
const get = async (url, options = {}) => (await globalThis.fetch(url, { dispatcher, ...options })).json();
const governed = { Authorization: `Bearer ${GRANT}` };

same("https", (await get(`https://${HOST}/echo`)).host, HOST);
const answer = await (await globalThis.fetch(`${BASE}/echo?a=b`, { headers: governed })).json();
same("base-url", answer.headers.authorization, `Bearer ${KEY}`);
// It opens a second connection when it likes, and then stays with what it has.
const came = new Set();
for (let i = 0; i < 6; i++) came.add((await get(`https://${HOST}/echo`)).connection);
same("keep-alive-https", came.size < 4, true);

const body = randomBytes(size);
same("upload-https", (await get(`https://${HOST}/echo`, { method: "PUT", body })).sha256, sha256(body));
const sent = await globalThis.fetch(`${BASE}/echo`, { method: "PUT", body, headers: governed });
same("upload-base-url", (await sent.json()).sha256, sha256(body));
const down = await globalThis.fetch(`https://${HOST}/down?bytes=${size}`, { dispatcher });
same("download-https", sha256(Buffer.from(await down.arrayBuffer())), down.headers.get("x-sha256"));
same("redirect-https", (await get(`https://${HOST}/redirect?to=https://${OTHER}/echo`)).host, OTHER);
const followed = await globalThis.fetch(`${BASE}/redirect?to=/echo&status=307`, {
  headers: { ...governed, "Tidegate-Follow-Redirects": "3" },
});
same("redirect-base-url", (await followed.json()).path, "/echo");

const times = [];
const events = await globalThis.fetch(`https://${HOST}/events`, { dispatcher });
for await (const chunk of events.body) if (chunk.length) times.push(performance.now());
same("events", times.at(-1) - times[0] > 300, true);

// It has words of its own for a tunnel that is refused, some versions with the status and some without.
const failure = async (dispatcher, host) => {
  try {
    return (await request(`https://${host}/`, { dispatcher })).statusCode;
  } catch (error) {
    return /Proxy response .*Tunneling/.test(error.message) || String(error);
  }
};
same("refused", await failure(dispatcher, DENIED), true);
same("unknown", await failure(agent(PROXY_ANONYMOUS), HOST), true);
same("unknown-base-url", (await globalThis.fetch(`${BASE}/echo`)).status, 401);
await dispatcher.close();
