// Standard Webhooks, under the names and with the keys of those who took it up.
import { at, base64, main, seconds } from "./recipe.mjs";

const bytesOf = (secret) => Buffer.from(secret.replace(/^whsec_/, ""), "base64");

const row = (stem, id = "id", keyOf = bytesOf) => ({
  secret: "whsec",
  body: "json",
  age: [0, 170],
  signature: at(`${stem}-signature`, "base64", "v1,(.+)"),
  recipe(d) {
    const t = seconds(d.at);
    const signature = `v1,${base64(keyOf(d.secret), `${d.id}.${t}.`, d.body)}`;
    return { headers: { [`${stem}-${id}`]: d.id, [`${stem}-timestamp`]: t, [`${stem}-signature`]: signature } };
  },
});

const signedBy = (stem) => (d, { Webhook }) => {
  const signature = new Webhook(d.secret).sign(d.id, new Date(d.at), d.text);
  return {
    headers: { [`${stem}-id`]: d.id, [`${stem}-timestamp`]: seconds(d.at), [`${stem}-signature`]: signature },
  };
};

const verifiedBy = (d, { Webhook }) => Boolean(new Webhook(d.secret).verify(d.text, d.headers));

export default [
  {
    name: "standardwebhooks",
    scheme: "standard-webhooks",
    ...row("webhook"),
    load: () => import("standardwebhooks"),
    sign: signedBy("webhook"),
    verify: verifiedBy,
  },
  {
    name: "svix",
    scheme: "svix",
    ...row("svix"),
    load: () => import("svix"),
    sign: signedBy("svix"),
    verify: verifiedBy,
  },
  {
    name: "@clerk/backend",
    scheme: "clerk",
    ...row("svix"),
    load: () => import("@clerk/backend/webhooks"),
    async verify(d, api) {
      const request = new Request(d.url, { method: "POST", headers: d.headers, body: d.body });
      return Boolean(await api.verifyWebhook(request, { signingSecret: d.secret }));
    },
  },
  {
    name: "resend",
    scheme: "resend",
    ...row("svix"),
    load: async () => new (await import("resend")).Resend("re_1").webhooks,
    verify(d, api) {
      const { "svix-id": id, "svix-timestamp": timestamp, "svix-signature": signature } = d.headers;
      return Boolean(api.verify({ payload: d.text, headers: { id, timestamp, signature }, webhookSecret: d.secret }));
    },
  },
  {
    name: "openai",
    scheme: "openai",
    ...row("webhook"),
    load: async () => new (main(await import("openai")))({ apiKey: "1" }).webhooks,
    async verify(d, api) {
      await api.verifySignature(d.text, d.headers, d.secret);
      return true;
    },
  },
  {
    name: "replicate",
    scheme: "replicate",
    ...row("webhook"),
    load: () => import("replicate"),
    verify(d, api) {
      const { "webhook-id": id, "webhook-timestamp": timestamp, "webhook-signature": signature } = d.headers;
      return api.validateWebhook({ id, timestamp, signature, body: d.text, secret: d.secret });
    },
  },
  {
    name: "lithic",
    scheme: "lithic",
    ...row("webhook"),
    load: async () => new (main(await import("lithic")))({ apiKey: "1" }).webhooks,
    verify(d, api) {
      api.verifySignature(d.text, d.headers, d.secret);
      return true;
    },
  },
  {
    name: "@liveblocks/node",
    scheme: "liveblocks",
    ...row("webhook"),
    // It also looks whether it knows the kind of event.
    body: "liveblocks",
    load: async () => (await import("@liveblocks/node")).WebhookHandler,
    verify: (d, Handler) => Boolean(new Handler(d.secret).verifyRequest({ headers: d.headers, rawBody: d.text })),
  },
  {
    name: "@seamapi/webhook",
    scheme: "seam",
    ...row("svix"),
    load: async () => (await import("@seamapi/webhook")).SeamWebhook,
    verify: (d, Webhook) => Boolean(new Webhook(d.secret).verify(d.text, d.headers)),
  },
  {
    name: "@tryfinch/finch-api",
    scheme: "finch",
    ...row("finch", "event-id"),
    secret: "base64",
    load: async () => new (main(await import("@tryfinch/finch-api")))({ accessToken: "1" }).webhooks,
    verify(d, api) {
      api.verifySignature(d.text, d.headers, d.secret);
      return true;
    },
  },
  {
    name: "@polar-sh/sdk",
    scheme: "polar",
    ...row("webhook", "id", (secret) => secret),
    secret: "text",
    load: () => import("@polar-sh/sdk/webhooks"),
    verify(d, api) {
      try {
        api.validateEvent(d.text, d.headers, d.secret);
      } catch (fault) {
        // Once the signature has been found right it reads the event, and these are none of its.
        if (fault instanceof api.WebhookVerificationError || fault.name === "SyntaxError") throw fault;
      }
      return true;
    },
  },
];
