"""A timestamp in the signature's header or in one of its own."""

from sdk import Sdk, base64_of, hexadecimal, seconds


def in_one(header, stamp, tag, ms=False, glue=".", separator=","):
    def make(d):
        t = str(d["at"]) if ms else seconds(d["at"])
        return {header: f"{stamp}={t}{separator}{tag}={hexadecimal(d['secret'], t, glue, d['body'])}"}

    return {"header": header, "encoding": "hex", "pattern": f"{tag}=([0-9a-f]+)", "make": make}


def stripe(d):
    import stripe

    return stripe.WebhookSignature.verify_header(
        d["body"].decode(), d["headers"]["stripe-signature"], d["secret"], stripe.Webhook.DEFAULT_TOLERANCE
    )


def workos(d):
    from workos.webhooks._verification import verify_header

    verify_header(event_body=d["body"], event_signature=d["headers"]["workos-signature"], secret=d["secret"])
    return True


def terra(d):
    from terra.utils.verify_signature import verify_terra_webhook_signature

    return verify_terra_webhook_signature(d["body"].decode(), d["headers"]["terra-signature"], d["secret"])


def paddle(d):
    from types import SimpleNamespace

    from paddle_billing.Notifications import Secret, Verifier

    headers = {"Paddle-Signature": d["headers"]["paddle-signature"]}
    # Its five seconds are less than a batch takes.
    return Verifier(600).verify(SimpleNamespace(headers=headers, body=d["body"]), Secret(d["secret"]))


def slack_signed(d):
    from slack_sdk.signature import SignatureVerifier

    t = seconds(d["at"])
    signature = SignatureVerifier(d["secret"]).generate_signature(timestamp=t, body=d["body"])
    return {"x-slack-request-timestamp": t, "x-slack-signature": signature}


def slack(d):
    from slack_sdk.signature import SignatureVerifier

    return SignatureVerifier(d["secret"]).is_valid_request(d["body"], d["headers"])


def box_made(d):
    from datetime import datetime, timezone

    t = datetime.fromtimestamp(d["at"] // 1000, timezone.utc).isoformat()
    return {
        "box-delivery-timestamp": t,
        "box-signature-version": "1",
        "box-signature-algorithm": "HmacSHA256",
        "box-signature-primary": base64_of(d["secret"], d["body"], t),
    }


def box(d):
    from box_sdk_gen.managers.webhooks import WebhooksManager

    return WebhooksManager.validate_message(d["body"].decode(), d["headers"], d["secret"])


def standard_made(d):
    from datetime import datetime, timezone

    from standardwebhooks import Webhook

    t = datetime.fromtimestamp(d["at"] // 1000, timezone.utc)
    signature = Webhook(d["secret"]).sign(d["id"], t, d["body"].decode())
    return {"webhook-id": d["id"], "webhook-timestamp": seconds(d["at"]), "webhook-signature": signature}


def standard(d):
    from standardwebhooks import Webhook

    Webhook(d["secret"]).verify(d["body"], d["headers"])
    return True


def svix_made(d):
    from datetime import datetime, timezone

    from svix.webhooks import Webhook

    t = datetime.fromtimestamp(d["at"] // 1000, timezone.utc)
    signature = Webhook(d["secret"]).sign(d["id"], t, d["body"].decode())
    return {"svix-id": d["id"], "svix-timestamp": seconds(d["at"]), "svix-signature": signature}


def svix(d):
    from svix.webhooks import Webhook

    Webhook(d["secret"]).verify(d["body"], d["headers"])
    return True


STANDARD = {"encoding": "base64", "pattern": "v1,(.+)", "secret": "whsec", "body": "json", "age": (0, 170)}

SDKS = [
    Sdk("stripe", "stripe", verify=stripe, secret="whsec-text", age=(0, 170), **in_one("stripe-signature", "t", "v1")),
    Sdk(
        "workos",
        "workos",
        verify=workos,
        age=(0, 90),
        **in_one("workos-signature", "t", "v1", ms=True, separator=", "),
    ),
    Sdk("terra-python", "terra", verify=terra, age=(0, 170), **in_one("terra-signature", "t", "v1")),
    Sdk(
        "paddle-python-sdk",
        "paddle",
        verify=paddle,
        age=(0, 2),
        **in_one("paddle-signature", "ts", "h1", glue=":", separator=";"),
    ),
    Sdk(
        "slack-sdk",
        "slack",
        header="x-slack-signature",
        encoding="hex",
        pattern="v0=(.+)",
        make=slack_signed,
        verify=slack,
        age=(0, 170),
        signs=True,
    ),
    Sdk(
        "boxsdk",
        "box",
        header="box-signature-primary",
        encoding="base64",
        make=box_made,
        verify=box,
        body="json",
        age=(2, 450),
    ),
    Sdk(
        "standardwebhooks",
        "standard-webhooks",
        header="webhook-signature",
        make=standard_made,
        verify=standard,
        signs=True,
        **STANDARD,
    ),
    Sdk("svix", "svix", header="svix-signature", make=svix_made, verify=svix, signs=True, **STANDARD),
]
