#!/usr/bin/env python3
"""Compares the presets with the official SDKs of their providers, both ways.

Each SDK signs deliveries with fresh random secrets, bodies and clocks (by its recipe, where it has no signer), a running
gateway judges them and the same with one bit changed; and each SDK judges what `tidegate sign` made, and that with one
bit changed. Whatever the two say differently is a disagreement, and the exit code is 1.

usage: run.py --binary FILE --work DIR [--deliveries 200] [--only WORD] [--seed N] [--report FILE]
"""

import argparse
import json
import secrets
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import mutations
import report
from appliance import HOST, Appliance
from cases import Dice, in_order
from sdks import Language

TAKEN = (200, 202)
REFUSED = 401
# Processes of `tidegate sign` at one time.
SIGNERS = 2
# What a disagreement is reported with; the rest of its kind is only counted.
SHOWN = 3


@dataclass
class Result:
    """What became of one SDK."""

    sdk: dict
    registry: str
    version: str
    deliveries: int = 0
    gateway_taken: int = 0
    gateway_refused: int = 0
    sdk_taken: int = 0
    sdk_refused: int = 0
    mutations: int = 0
    disagreements: list = field(default_factory=list)


def judge(result, what, wanted, items, verdicts):
    """Counts those that are as wanted, and keeps the others."""
    agreed = 0
    for item, verdict in zip(items, verdicts, strict=True):
        if wanted(verdict):
            agreed += 1
        else:
            result.disagreements.append({"what": what, "verdict": verdict, "delivery": item})
    return agreed


def compare(language, sdk, appliance, endpoints, keys, dice):
    result = Result(sdk, language.name, language.version(sdk), deliveries=len(keys))
    cases = [
        dice.case(sdk, secret, f"https://{HOST}/hooks/{endpoint}")
        for endpoint, secret in zip(endpoints, keys, strict=True)
    ]
    made = [dict(case, **part) for case, part in zip(cases, language.batch("make", sdk, cases), strict=True)]
    changed = [mutation for delivery in made for mutation in mutations.of(delivery, sdk, dice)]
    result.mutations = len(changed)
    result.gateway_taken = judge(
        result, "the SDK made it, the gateway refuses", lambda status: status in TAKEN, made, appliance.post(made)
    )
    result.gateway_refused = judge(
        result, "a bit was changed, the gateway takes it", lambda status: status == REFUSED, changed,
        appliance.post(changed),
    )

    fresh = [dice.case(sdk, dice.secret(sdk["secret"]), case["url"].split("?")[0]) for case in cases]
    with ThreadPoolExecutor(SIGNERS) as pool:
        signed = list(pool.map(lambda case: appliance.sign(sdk["scheme"], case), fresh))
    changed_too = [mutation for delivery in signed for mutation in mutations.of(delivery, sdk, dice)]
    parts = [made, signed, changed, changed_too]
    verdicts = language.batch("verify", sdk, [item for part in parts for item in part])
    judged = []
    for part in parts:
        judged.append(verdicts[: len(part)])
        verdicts = verdicts[len(part) :]
    judge(result, "the SDK refuses what it made itself", lambda v: v["taken"], made, judged[0])
    result.sdk_taken = judge(
        result, "tidegate signed it, the SDK refuses", lambda v: v["taken"], signed, judged[1]
    )
    result.sdk_refused = judge(
        result, "a bit was changed, the SDK takes it", lambda v: not v["taken"], changed + changed_too,
        judged[2] + judged[3],
    )
    return result


def arguments():
    parser = argparse.ArgumentParser(description="Compares the presets with the official SDKs of their providers.")
    parser.add_argument("--binary", required=True, type=Path)
    parser.add_argument("--work", required=True, type=Path)
    parser.add_argument("--deliveries", type=int, default=200)
    parser.add_argument("--only", help="SDKs whose name or scheme has this word")
    parser.add_argument("--seed", type=int, default=secrets.randbits(32))
    parser.add_argument("--report", type=Path)
    return parser.parse_args()


def main():
    args = arguments()
    work = args.work.resolve()
    languages = [Language(name, work) for name in ("npm", "pypi")]
    chosen = [
        (language, in_order(sdk))
        for language in languages
        for sdk in language.sdks
        if not args.only or args.only in sdk["name"] or args.only in sdk["scheme"]
    ]
    dice = Dice(args.seed)
    print(f"{len(chosen)} SDKs, {args.deliveries} deliveries each, --seed {args.seed}", flush=True)
    directory = Path(tempfile.mkdtemp(prefix="gateway-", dir=work))
    appliance = Appliance(args.binary.resolve(), directory)
    results = []
    try:
        tenants = []
        for number, (_, sdk) in enumerate(chosen):
            keys = [dice.secret(sdk["secret"]) for _ in range(args.deliveries)]
            tenants.append((appliance.tenant(f"t{number:03}", sdk["scheme"], keys), keys))
        appliance.start()
        for (language, sdk), (endpoints, keys) in zip(chosen, tenants, strict=True):
            began = time.monotonic()
            result = compare(language, sdk, appliance, endpoints, keys, dice)
            results.append(result)
            verdict = f"{len(result.disagreements)} DISAGREEMENTS" if result.disagreements else "agrees"
            print(f"{language.name:4}  {sdk['name']:32} {sdk['scheme']:18} {verdict}  "
                  f"{time.monotonic() - began:.0f} s", flush=True)
            for disagreement in result.disagreements[:SHOWN]:
                print("      " + json.dumps(disagreement, ensure_ascii=False)[:1500], flush=True)
    finally:
        appliance.stop()
        shutil.rmtree(directory, ignore_errors=True)
    if args.report:
        report.write(args.report, results, args.deliveries)
    return 1 if any(result.disagreements for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
