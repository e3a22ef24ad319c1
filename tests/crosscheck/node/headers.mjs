// A timestamp in a header of its own, or in the body.
import { at, base64, hex, main, seconds } from "./recipe.mjs";

export default [
  {
    name: "@slack/bolt",
    scheme: "slack",
    age: [0, 170],
    signature: at("x-slack-signature", "hex", "v0=(.+)"),
    recipe(d) {
      const t = seconds(d.at);
      const signature = `v0=${hex(d.secret, "v0:", t, ":", d.body)}`;
      return { headers: { "x-slack-request-timestamp": t, "x-slack-signature": signature } };
    },
    load: () => import("@slack/bolt"),
    verify(d, api) {
      api.verifySlackRequest({ signingSecret: d.secret, body: d.text, headers: d.headers });
      return true;
    },
  },
  {
    name: "webflow-api",
    scheme: "webflow",
    age: [0, 170],
    signature: at("x-webflow-signature", "hex"),
    recipe: (d) => ({
      headers: { "x-webflow-timestamp": String(d.at), "x-webflow-signature": hex(d.secret, `${d.at}:`, d.body) },
    }),
    load: async () => new (await import("webflow-api")).WebflowClient({ accessToken: "1" }).webhooks,
    verify: (d, api) => api.verifySignature({ headers: d.headers, body: d.text, secret: d.secret }),
  },
  {
    name: "cashfree-pg",
    scheme: "cashfree",
    body: "json",
    age: [0, 80000],
    signature: at("x-webhook-signature", "base64"),
    recipe: (d) => ({
      headers: { "x-webhook-timestamp": String(d.at), "x-webhook-signature": base64(d.secret, String(d.at), d.body) },
    }),
    load: async () => (await import("cashfree-pg")).Cashfree ?? main(await import("cashfree-pg")).Cashfree,
    verify(d, Cashfree) {
      // Without its reports of faults, which it sends home.
      const api = new Cashfree("SANDBOX", "id", d.secret, undefined, undefined, undefined, false);
      const { "x-webhook-signature": signature, "x-webhook-timestamp": t } = d.headers;
      return Boolean(api.PGVerifyWebhookSignature(signature, d.text, t));
    },
  },
  {
    name: "crisp-api",
    scheme: "crisp",
    body: "canonical",
    age: [0, 80000],
    signature: at("x-crisp-signature", "hex"),
    recipe: (d) => ({
      headers: {
        "x-crisp-request-timestamp": String(d.at),
        "x-crisp-signature": hex(d.secret, `[${d.at};`, d.body, "]"),
      },
    }),
    load: async () => new (main(await import("crisp-api")))(),
    // verifyHook is the same behind a check that the client has bound its events.
    verify: (d, api) =>
      api.verifyWidget(
        d.secret,
        JSON.parse(d.text),
        d.headers["x-crisp-request-timestamp"],
        d.headers["x-crisp-signature"],
      ),
  },
  {
    name: "box-node-sdk",
    scheme: "box",
    body: "json",
    age: [1, 450],
    signature: at("box-signature-primary", "base64"),
    recipe(d) {
      const t = new Date(d.at).toISOString();
      const headers = { "box-delivery-timestamp": t, "box-signature-version": "1" };
      headers["box-signature-algorithm"] = "HmacSHA256";
      headers["box-signature-primary"] = base64(d.secret, d.body, t);
      return { headers };
    },
    load: async () => (await import("box-node-sdk/managers/webhooks")).WebhooksManager,
    verify: (d, api) => api.validateMessage(d.text, d.headers, d.secret),
  },
  {
    name: "@linear/sdk",
    scheme: "linear",
    body: "linear",
    age: [0, 20],
    // It takes nothing that is older than a minute.
    standing: true,
    signature: at("linear-signature", "hex"),
    recipe: (d) => ({ headers: { "linear-signature": hex(d.secret, d.body) } }),
    load: async () => (await import("@linear/sdk/webhooks")).LinearWebhookClient,
    verify: (d, Client) => new Client(d.secret).verify(d.body, d.headers["linear-signature"]),
  },
];
