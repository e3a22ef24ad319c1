// A digest of the body alone, in base64.
import { at, base64, mac, main } from "./recipe.mjs";

const row = (header) => ({
  signature: at(header, "base64"),
  recipe: (d) => ({ headers: { [header]: base64(d.secret, d.body) } }),
});

/** Its webhooks and its events differ in the names of their headers. */
const shopify = (name, scheme, stem) => ({
  name,
  package: "@shopify/shopify-api",
  scheme,
  ...row(`${stem}hmac-sha256`),
  async load() {
    await import("@shopify/shopify-api/adapters/node");
    return import("@shopify/shopify-api");
  },
  async verify(d, { shopifyApi, ApiVersion }) {
    const api = shopifyApi({
      apiKey: "key",
      apiSecretKey: d.secret,
      apiVersion: Object.values(ApiVersion).at(-1),
      hostName: "shop.example.com",
      isEmbeddedApp: true,
      logger: { level: 0, log() {} },
    });
    // It wants these beside the signature, which does not cover them.
    const beside = { "webhook-id": "1", "event-id": "2", topic: "orders/create", "api-version": "2026-01" };
    const headers = { ...d.headers, [`${stem}shop-domain`]: "shop.example.com" };
    for (const [name, value] of Object.entries(beside)) headers[stem + name] ??= value;
    const rawRequest = { method: "POST", url: d.url, headers };
    const { valid } = await api.webhooks.validate({ rawBody: d.text, rawRequest, rawResponse: {} });
    return valid;
  },
});

export default [
  {
    name: "@line/bot-sdk",
    scheme: "line",
    body: "bytes",
    ...row("x-line-signature"),
    load: () => import("@line/bot-sdk"),
    verify: (d, api) => api.validateSignature(d.body, d.secret, d.headers["x-line-signature"]),
  },
  shopify("@shopify/shopify-api", "shopify", "x-shopify-"),
  shopify("@shopify/shopify-api (events)", "shopify-events", "shopify-"),
  {
    name: "@kontent-ai/webhook-helper",
    scheme: "kontent-ai",
    ...row("x-kontent-ai-signature"),
    load: async () => (await import("@kontent-ai/webhook-helper")).signatureHelper,
    sign: (d, api) => ({ headers: { "x-kontent-ai-signature": api.getHashFromString(d.text, d.secret) } }),
    verify: (d, api) => api.isValidSignatureFromString(d.text, d.secret, d.headers["x-kontent-ai-signature"]),
  },
  {
    name: "cronofy",
    scheme: "cronofy",
    ...row("cronofy-hmac-sha256"),
    load: async () => new (main(await import("cronofy")))({ client_id: "1", client_secret: "2" }),
    verify: (d, api) =>
      api.hmacValid({ hmac: d.headers["cronofy-hmac-sha256"], body: d.text, client_secret: d.secret }),
  },
  {
    name: "@unit-finance/unit-node-sdk",
    scheme: "unit",
    body: "canonical",
    signature: at("x-unit-signature", "base64"),
    recipe: (d) => ({ headers: { "x-unit-signature": mac("sha1", d.secret, d.body).digest("base64") } }),
    load: async () => new (await import("@unit-finance/unit-node-sdk")).Webhooks("token", "https://api.example.com"),
    verify: (d, api) => api.verify(d.headers["x-unit-signature"], d.secret, JSON.parse(d.text)),
  },
];
