// A digest of the body alone, in hexadecimal.
import { at, hex, main } from "./recipe.mjs";

const row = (header, prefix = "") => ({
  signature: at(header, "hex", `${prefix}(.+)`),
  recipe: (d) => ({ headers: { [header]: prefix + hex(d.secret, d.body) } }),
});

export default [
  {
    name: "@octokit/webhooks-methods",
    scheme: "github",
    ...row("x-hub-signature-256", "sha256="),
    load: () => import("@octokit/webhooks-methods"),
    sign: async (d, api) => ({ headers: { "x-hub-signature-256": await api.sign(d.secret, d.text) } }),
    verify: (d, api) => api.verify(d.secret, d.text, d.headers["x-hub-signature-256"]),
  },
  {
    name: "razorpay",
    scheme: "razorpay",
    ...row("x-razorpay-signature"),
    load: async () => main(await import("razorpay")),
    verify: (d, api) => api.validateWebhookSignature(d.text, d.headers["x-razorpay-signature"], d.secret),
  },
  {
    name: "pusher",
    scheme: "pusher",
    body: "json",
    ...row("x-pusher-signature"),
    load: async () => main(await import("pusher")),
    verify: (d, Pusher) =>
      new Pusher({ appId: "1", key: "k", secret: d.secret, cluster: "eu" })
        .webhook({
          headers: { "content-type": "application/json", ...d.headers, "x-pusher-key": "k" },
          rawBody: d.text,
        })
        .isValid(),
  },
  {
    name: "gocardless-nodejs",
    scheme: "gocardless",
    ...row("webhook-signature"),
    load: () => import("gocardless-nodejs/webhooks"),
    verify(d, api) {
      api.verifySignature(d.body, d.secret, d.headers["webhook-signature"]);
      return true;
    },
  },
  {
    name: "coinbase-commerce-node",
    scheme: "coinbase-commerce",
    ...row("x-cc-webhook-signature"),
    load: async () => main(await import("coinbase-commerce-node")).Webhook,
    sign: (d, api) => ({ headers: { "x-cc-webhook-signature": api.computeSignature(d.text, d.secret) } }),
    verify: (d, api) => api.verifySigHeader(d.text, d.headers["x-cc-webhook-signature"], d.secret),
  },
  {
    name: "@onfido/api",
    scheme: "onfido",
    body: "json",
    ...row("x-sha2-signature"),
    load: async () => (await import("@onfido/api")).WebhookEventVerifier,
    verify: (d, Verifier) => Boolean(new Verifier(d.secret).readPayload(d.body, d.headers["x-sha2-signature"])),
  },
  {
    name: "mailtrap",
    scheme: "mailtrap",
    ...row("mailtrap-signature"),
    load: () => import("mailtrap"),
    verify: (d, api) => api.verifyWebhookSignature(d.body, d.headers["mailtrap-signature"], d.secret),
  },
  {
    name: "viber-bot",
    scheme: "viber",
    ...row("x-viber-content-signature"),
    load: async () => main(await import("viber-bot/lib/message/message-validator.js")),
    verify: (d, Validator) =>
      new Validator({ debug() {} }, d.secret).validateMessage(d.headers["x-viber-content-signature"], d.body),
  },
  {
    name: "smartcar",
    scheme: "smartcar",
    body: "canonical",
    ...row("sc-signature"),
    load: async () => main(await import("smartcar")),
    sign: (d, api) => ({ headers: { "sc-signature": api.hashChallenge(d.secret, d.text) } }),
    verify: (d, api) => api.verifyPayload(d.secret, d.headers["sc-signature"], JSON.parse(d.text)),
  },
  {
    name: "@nangohq/node",
    scheme: "nango",
    ...row("x-nango-hmac-sha256"),
    load: async () => (await import("@nangohq/node")).Nango,
    verify: (d, Nango) => new Nango({ secretKey: d.secret }).verifyIncomingWebhookRequest(d.text, d.headers),
  },
  {
    name: "stream-chat",
    scheme: "getstream",
    ...row("x-signature"),
    load: async () => main(await import("stream-chat")),
    verify: (d, api) => api.CheckSignature(d.body, d.secret, d.headers["x-signature"]),
  },
  {
    name: "@easypost/api",
    scheme: "easypost",
    body: "json",
    secret: "ascii",
    ...row("x-hmac-signature", "hmac-sha256-hex="),
    load: async () => new (main(await import("@easypost/api")))("key"),
    verify: (d, api) => Boolean(api.Utils.validateWebhook(d.body, d.headers, d.secret)),
  },
];
