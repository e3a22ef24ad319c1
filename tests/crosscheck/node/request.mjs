// What is signed is more of the request than its body.
import { parse } from "node:querystring";

import { at, base64, main } from "./recipe.mjs";

const twilio = async () => main(await import("twilio"));
const hubspot = async () => (await import("@hubspot/api-client")).Signature;

const hubspotFacts = (d, header) => ({
  clientSecret: d.secret,
  requestBody: d.text,
  url: d.url,
  method: "POST",
  signature: d.headers?.[header],
});

export default [
  {
    name: "twilio",
    scheme: "twilio",
    body: "form",
    url: "query",
    signature: at("x-twilio-signature", "base64"),
    load: twilio,
    sign: (d, api) => ({
      headers: {
        "content-type": "application/x-www-form-urlencoded",
        "x-twilio-signature": api.getExpectedTwilioSignature(d.secret, d.url, parse(d.text)),
      },
    }),
    verify: (d, api) => api.validateRequest(d.secret, d.headers["x-twilio-signature"], d.url, parse(d.text)),
  },
  {
    name: "twilio (JSON)",
    package: "twilio",
    scheme: "twilio",
    body: "json",
    url: "query",
    signature: at("x-twilio-signature", "base64"),
    load: twilio,
    sign(d, api) {
      const url = `${d.url}&bodySHA256=${api.getExpectedBodyHash(d.text)}`;
      const signature = api.getExpectedTwilioSignature(d.secret, url, {});
      return { url, headers: { "content-type": "application/json", "x-twilio-signature": signature } };
    },
    verify: (d, api) => api.validateRequestWithBody(d.secret, d.headers["x-twilio-signature"], d.url, d.text),
  },
  {
    name: "twilio (HMAC-SHA256)",
    package: "twilio",
    scheme: "twilio-sha256",
    body: "form",
    url: "query",
    signature: at("x-twilio-signature", "base64"),
    load: twilio,
    sign: (d, api) => ({
      headers: {
        "content-type": "application/x-www-form-urlencoded",
        "x-twilio-webhooks-signature-settings": "key=webhooks_sharedkey_1,algorithm=HMAC_SHA256",
        "x-twilio-signature": api.getExpectedTwilioSignature(d.secret, d.url, parse(d.text), "HMAC_SHA256"),
      },
    }),
    verify: (d, api) =>
      api.validateRequest(d.secret, d.headers["x-twilio-signature"], d.url, parse(d.text), "HMAC_SHA256"),
  },
  {
    name: "square",
    scheme: "square",
    url: "query",
    signature: at("x-square-hmacsha256-signature", "base64"),
    recipe: (d) => ({ headers: { "x-square-hmacsha256-signature": base64(d.secret, d.url, d.body) } }),
    load: async () => (await import("square")).WebhooksHelper,
    verify: (d, api) =>
      api.verifySignature({
        requestBody: d.text,
        signatureHeader: d.headers["x-square-hmacsha256-signature"],
        signatureKey: d.secret,
        notificationUrl: d.url,
      }),
  },
  {
    name: "@hubspot/api-client (v1)",
    package: "@hubspot/api-client",
    scheme: "hubspot-v1",
    signature: at("x-hubspot-signature", "hex"),
    load: hubspot,
    sign: (d, api) => ({
      headers: {
        "x-hubspot-signature-version": "v1",
        "x-hubspot-signature": api.getSignature("POST", "v1", hubspotFacts(d)),
      },
    }),
    verify: (d, api) => api.isValid({ ...hubspotFacts(d, "x-hubspot-signature"), signatureVersion: "v1" }),
  },
  {
    name: "@hubspot/api-client (v2)",
    package: "@hubspot/api-client",
    scheme: "hubspot-v2",
    url: "query",
    signature: at("x-hubspot-signature", "hex"),
    load: hubspot,
    sign: (d, api) => ({
      headers: {
        "x-hubspot-signature-version": "v2",
        "x-hubspot-signature": api.getSignature("POST", "v2", hubspotFacts(d)),
      },
    }),
    verify: (d, api) => api.isValid({ ...hubspotFacts(d, "x-hubspot-signature"), signatureVersion: "v2" }),
  },
  {
    name: "@hubspot/api-client (v3)",
    package: "@hubspot/api-client",
    scheme: "hubspot-v3",
    url: "query",
    age: [0, 170],
    signature: at("x-hubspot-signature-v3", "base64"),
    load: hubspot,
    sign(d, api) {
      const signature = api.getSignature("POST", "v3", { ...hubspotFacts(d), timestamp: d.at });
      return { headers: { "x-hubspot-request-timestamp": String(d.at), "x-hubspot-signature-v3": signature } };
    },
    verify: (d, api) =>
      api.isValid({
        ...hubspotFacts(d, "x-hubspot-signature-v3"),
        timestamp: Number(d.headers["x-hubspot-request-timestamp"]),
        signatureVersion: "v3",
      }),
  },
];
