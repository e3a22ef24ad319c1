"""A digest of the body alone."""

from sdk import Sdk, base64_of, hexadecimal


def in_hex(header, prefix=""):
    def make(d):
        return {header: prefix + hexadecimal(d["secret"], d["body"])}

    return {"header": header, "encoding": "hex", "pattern": f"{prefix}(.+)", "make": make}


def in_base64(header):
    def make(d):
        return {header: base64_of(d["secret"], d["body"])}

    return {"header": header, "encoding": "base64", "make": make}


def gidgethub(d):
    from gidgethub import sansio

    sansio.validate_event(d["body"], signature=d["headers"]["x-hub-signature-256"], secret=d["secret"])
    return True


def razorpay(d):
    import razorpay

    api = razorpay.Client(auth=("id", "key"))
    return api.utility.verify_webhook_signature(
        d["body"].decode(), d["headers"]["x-razorpay-signature"], d["secret"]
    )


def gocardless(d):
    from gocardless_pro import webhooks

    webhooks.parse(d["body"], d["secret"], d["headers"]["webhook-signature"])
    return True


def coinbase(d):
    from coinbase_commerce.webhook import WebhookSignature

    return WebhookSignature.verify_sig_header(
        d["body"].decode(), d["headers"]["x-cc-webhook-signature"], d["secret"]
    )


def stream_chat(d):
    from stream_chat.webhook import verify_signature

    return verify_signature(d["body"], d["headers"]["x-signature"], d["secret"])


def easypost(d):
    from easypost.util import validate_webhook

    # It looks for its header by this spelling only.
    headers = {"X-Hmac-Signature": d["headers"]["x-hmac-signature"]}
    validate_webhook(d["body"], headers, d["secret"])
    return True


def viber(d):
    from viberbot import Api, BotConfiguration

    api = Api(BotConfiguration(name="bot", avatar="", auth_token=d["secret"]))
    return api.verify_signature(d["body"], d["headers"]["x-viber-content-signature"])


def pusher(d):
    import pusher

    # It reads the body and holds its `time_ms` against the clock.
    api = pusher.Pusher(app_id="1", key="k", secret=d["secret"], cluster="eu")
    return api.validate_webhook("k", d["headers"]["x-pusher-signature"], d["body"].decode()) is not None


def line(d):
    from linebot.v3.webhook import SignatureValidator

    return SignatureValidator(d["secret"]).validate(d["body"].decode(), d["headers"]["x-line-signature"])


def castle(d):
    from types import SimpleNamespace

    from castle.webhooks.verify import WebhooksVerify

    webhook = SimpleNamespace(data=d["body"], headers={"X-Castle-Signature": d["headers"]["x-castle-signature"]})
    WebhooksVerify.call(webhook, SimpleNamespace(api_secret=d["secret"]))
    return True


SDKS = [
    Sdk("gidgethub", "github", verify=gidgethub, body="bytes", **in_hex("x-hub-signature-256", "sha256=")),
    Sdk("razorpay", "razorpay", verify=razorpay, **in_hex("x-razorpay-signature")),
    Sdk("gocardless-pro", "gocardless", verify=gocardless, body="gocardless", **in_hex("webhook-signature")),
    Sdk("coinbase-commerce", "coinbase-commerce", verify=coinbase, **in_hex("x-cc-webhook-signature")),
    Sdk("stream-chat", "getstream", verify=stream_chat, body="bytes", **in_hex("x-signature")),
    Sdk(
        "easypost",
        "easypost",
        verify=easypost,
        body="json",
        secret="ascii",
        **in_hex("x-hmac-signature", "hmac-sha256-hex="),
    ),
    Sdk("viberbot", "viber", verify=viber, body="bytes", secret="ascii", **in_hex("x-viber-content-signature")),
    Sdk("pusher", "pusher", verify=pusher, body="pusher", **in_hex("x-pusher-signature")),
    Sdk("line-bot-sdk", "line", verify=line, **in_base64("x-line-signature")),
    Sdk("castle", "castle", verify=castle, body="bytes", **in_base64("x-castle-signature")),
]
