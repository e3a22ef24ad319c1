// A timestamp and a digest in one header.
import { at, hex, main, seconds } from "./recipe.mjs";

const row = (header, stamp, tag, { ms = false, glue = ".", separator = "," } = {}) => ({
  signature: at(header, "hex", `${tag}=([0-9a-f]+)`),
  recipe(d) {
    const t = ms ? String(d.at) : seconds(d.at);
    return { headers: { [header]: `${stamp}=${t}${separator}${tag}=${hex(d.secret, t, glue, d.body)}` } };
  },
});

export default [
  {
    name: "stripe",
    scheme: "stripe",
    secret: "whsec-text",
    body: "json",
    age: [0, 170],
    ...row("stripe-signature", "t", "v1"),
    load: async () => new (main(await import("stripe")))("sk_test_1"),
    sign: (d, api) => ({
      headers: {
        "stripe-signature": api.webhooks.generateTestHeaderString({
          payload: d.text,
          secret: d.secret,
          timestamp: Number(seconds(d.at)),
        }),
      },
    }),
    verify: (d, api) => Boolean(api.webhooks.constructEvent(d.body, d.headers["stripe-signature"], d.secret)),
  },
  {
    name: "@mux/mux-node",
    scheme: "mux",
    age: [0, 170],
    ...row("mux-signature", "t", "v1"),
    load: async () => main(await import("@mux/mux-node")),
    async verify(d, Mux) {
      const api = new Mux({ tokenId: "1", tokenSecret: "2", webhookSecret: d.secret });
      await api.webhooks.verifySignature(d.text, d.headers);
      return true;
    },
  },
  {
    name: "@workos-inc/node",
    scheme: "workos",
    body: "canonical",
    age: [0, 90],
    ...row("workos-signature", "t", "v1", { ms: true, separator: ", " }),
    load: async () => new (await import("@workos-inc/node")).WorkOS("sk_1").webhooks,
    sign: async (d, api) => ({
      headers: {
        "workos-signature": `t=${d.at}, v1=${await api.computeSignature(d.at, JSON.parse(d.text), d.secret)}`,
      },
    }),
    verify: (d, api) =>
      api.verifyHeader({ payload: JSON.parse(d.text), sigHeader: d.headers["workos-signature"], secret: d.secret }),
  },
  {
    name: "@paddle/paddle-node-sdk",
    scheme: "paddle",
    age: [0, 2],
    // It takes nothing that is older than five seconds.
    standing: true,
    ...row("paddle-signature", "ts", "h1", { glue: ":", separator: ";" }),
    load: async () => new (await import("@paddle/paddle-node-sdk")).Paddle("key").webhooks,
    verify: (d, api) => api.isSignatureValid(d.text, d.secret, d.headers["paddle-signature"]),
  },
  {
    name: "@elevenlabs/elevenlabs-js",
    scheme: "elevenlabs",
    body: "json",
    age: [0, 1600],
    ...row("elevenlabs-signature", "t", "v0"),
    load: async () => new (await import("@elevenlabs/elevenlabs-js")).ElevenLabsClient({ apiKey: "1" }).webhooks,
    verify: async (d, api) =>
      Boolean(await api.constructEvent(d.text, d.headers["elevenlabs-signature"], d.secret)),
  },
  {
    name: "terra-api",
    scheme: "terra",
    age: [0, 170],
    ...row("terra-signature", "t", "v1"),
    load: () => import("terra-api"),
    verify: (d, api) => api.verifyTerraWebhookSignature(d.text, d.headers["terra-signature"], d.secret),
  },
  {
    name: "retell-sdk",
    scheme: "retell",
    age: [0, 0],
    signature: at("x-retell-signature", "hex", "d=([0-9a-f]+)"),
    load: () => import("retell-sdk"),
    // It signs as of now.
    sign: async (d, api) => ({ headers: { "x-retell-signature": await api.sign(d.text, d.secret) } }),
    verify: (d, api) => api.verify(d.text, d.secret, d.headers["x-retell-signature"]),
  },
  {
    name: "@sanity/webhook",
    scheme: "sanity",
    age: [0, 100000],
    signature: at("sanity-webhook-signature", "base64url", "v1=(.+)"),
    load: () => import("@sanity/webhook"),
    sign: async (d, api) => ({
      headers: { "sanity-webhook-signature": await api.encodeSignatureHeader(d.text, d.at, d.secret) },
    }),
    verify: (d, api) => api.isValidSignature(d.text, d.headers["sanity-webhook-signature"], d.secret),
  },
];
