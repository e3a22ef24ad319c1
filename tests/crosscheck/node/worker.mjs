// Runs one SDK over a file of deliveries: `worker.mjs OP SDK IN OUT`.
//
// describe: what every SDK here needs and how its signatures look.
// make:     deliveries as the provider would send them, signed by the SDK where it can sign, else by its recipe.
// verify:   what the SDK says of each delivery: true or false. What it throws is a no.
import { readFileSync, writeFileSync } from "node:fs";

const FAMILIES = ["plain", "base64", "stamped", "headers", "standard", "request"];

async function all() {
  const found = [];
  for (const family of FAMILIES) found.push(...(await import(`./${family}.mjs`)).default);
  return found;
}

/** A clock that stands still, for an SDK whose window is shorter than a batch takes. */
function standingAt(unixMs) {
  const Real = Date;
  globalThis.Date = class extends Real {
    constructor(...given) {
      super(...(given.length ? given : [unixMs]));
    }
    static now() {
      return unixMs;
    }
  };
  return () => (globalThis.Date = Real);
}

/** What is written down about a delivery, as the modules of the families want it. */
function opened(item) {
  const body = Buffer.from(item.body, "base64");
  return { ...item, body, text: body.toString("utf8") };
}

async function make(sdk, api, item) {
  const order = opened(item);
  const made = await (sdk.sign ?? sdk.recipe)(order, api);
  return { url: order.url, ...made };
}

async function verify(sdk, api, item) {
  const delivery = opened(item);
  const undo = sdk.standing ? standingAt(item.at + item.age) : () => {};
  try {
    return { taken: (await sdk.verify(delivery, api)) === true };
  } catch (fault) {
    return { taken: false, fault: String(fault?.message ?? fault).slice(0, 200) };
  } finally {
    undo();
  }
}

async function main([op, name, input, output]) {
  const sdks = await all();
  if (op === "describe") {
    const facts = sdks.map(({ load, sign, recipe, verify, ...facts }) => ({ ...facts, signs: Boolean(sign) }));
    console.log(JSON.stringify(facts));
    return;
  }
  const sdk = sdks.find((one) => one.name === name);
  if (!sdk) throw new Error(`no SDK ${name} is known here`);
  const api = await sdk.load();
  const work = { make, verify }[op];
  const out = [];
  for (const item of JSON.parse(readFileSync(input, "utf8"))) out.push(await work(sdk, api, item));
  writeFileSync(output, JSON.stringify(out));
}

// Some SDKs write to the console, or leave timers behind.
await main(process.argv.slice(2));
process.exit(0);
