// The recipes, for SDKs that only verify: HMAC of Node's own, and nothing of the appliance.
import { createHmac } from "node:crypto";

export const mac = (hash, key, ...parts) => {
  const hmac = createHmac(hash, key);
  for (const part of parts) hmac.update(part);
  return hmac;
};

export const hex = (key, ...parts) => mac("sha256", key, ...parts).digest("hex");
export const base64 = (key, ...parts) => mac("sha256", key, ...parts).digest("base64");

/** Unix seconds of milliseconds, as providers write them. */
export const seconds = (at) => String(Math.floor(at / 1000));

/** Where a signature stands: a header, and what of it is the digest. */
export const at = (header, encoding, pattern = "(.+)") => ({ header, encoding, pattern });

/** What an SDK of CommonJS or of ES modules exports by default. */
export const main = (module) => module.default?.default ?? module.default ?? module;
