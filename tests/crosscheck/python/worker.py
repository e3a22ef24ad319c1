"""Runs one SDK over a file of deliveries: `worker.py OP SDK IN OUT`.

describe: what every SDK here needs and how its signatures look.
make:     deliveries as the provider would send them, by the recipe or by the SDK where it signs.
verify:   what the SDK says of each delivery: true or false. What it throws is a no.
"""

import base64
import json
import sys

import plain
import request
import stamped

SDKS = [sdk for family in (plain, stamped, request) for sdk in family.SDKS]


def opened(item):
    """What is written down about a delivery, with its body as bytes."""
    return dict(item, body=base64.b64decode(item["body"]))


def make(sdk, item):
    order = opened(item)
    headers = sdk.make(order)
    return {"url": order["url"], "headers": headers}


def verify(sdk, item):
    try:
        return {"taken": sdk.verify(opened(item)) is True}
    except Exception as fault:  # whatever an SDK throws is its no
        return {"taken": False, "fault": str(fault)[:200]}


def main(op, name=None, given=None, out=None):
    if op == "describe":
        print(json.dumps([sdk.facts() for sdk in SDKS]))
        return
    sdk = next(one for one in SDKS if one.name == name)
    sdk.load()
    work = {"make": make, "verify": verify}[op]
    with open(given, encoding="utf-8") as file:
        items = json.load(file)
    with open(out, "w", encoding="utf-8") as file:
        json.dump([work(sdk, item) for item in items], file)


if __name__ == "__main__":
    main(*sys.argv[1:])
