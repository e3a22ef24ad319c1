"""The table that is kept in the documents."""

from datetime import datetime, timezone

HEAD = """# Presets beside the official SDKs

`make schemes-crosscheck` wrote this on {day}. For each SDK it made {deliveries} deliveries with fresh random secrets,
bodies (Unicode, escapes, CRLF, next to nothing; bytes that are no text where the SDK takes bytes) and clocks within the
SDK's tolerance, and changed one bit of the body and one of the signature's value of each.

- **gateway takes**: deliveries that the SDK signed, or that its recipe made where it has no signer, and a running gateway
  took; **refuses**: the same with a bit changed, which the gateway refused.
- **SDK takes**: deliveries that `tidegate sign` made and the SDK took; **refuses**: of both sides' deliveries with a bit
  changed, those that the SDK refused.

{sdks} SDKs, {packages} packages, {schemes} presets, {disagreements}.

| registry | SDK | version | preset | signed by | gateway takes | refuses | SDK takes | refuses |
|---|---|---|---|---|---|---|---|---|
"""


def row(result):
    sdk = result.sdk
    cells = [
        result.registry,
        f"`{sdk['name']}`",
        result.version,
        f"`{sdk['scheme']}`",
        "the SDK" if sdk["signs"] else "its recipe",
        f"{result.gateway_taken} of {result.deliveries}",
        f"{result.gateway_refused} of {result.mutations}",
        f"{result.sdk_taken} of {result.deliveries}",
        f"{result.sdk_refused} of {2 * result.mutations}",
    ]
    return "| " + " | ".join(cells) + " |\n"


def write(path, results, deliveries):
    count = sum(len(result.disagreements) for result in results)
    head = HEAD.format(
        day=datetime.now(timezone.utc).date(),
        deliveries=deliveries,
        sdks=len(results),
        packages=len({(result.registry, result.sdk.get("package") or result.sdk["name"]) for result in results}),
        schemes=len({result.sdk["scheme"] for result in results}),
        disagreements=f"{count} disagreements" if count else "no disagreement",
    )
    path.write_text(head + "".join(row(result) for result in results), encoding="utf-8")
