"""What is signed is more of the request than its body."""

from urllib.parse import parse_qs

from sdk import Sdk, base64_of


class Form:
    """A form as web frameworks give it: names with one value or more."""

    def __init__(self, body):
        self.fields = parse_qs(body.decode(), keep_blank_values=True, strict_parsing=True)

    def __iter__(self):
        return iter(self.fields)

    def __len__(self):
        return len(self.fields)

    def getlist(self, name):
        return self.fields[name]


def twilio_made(d):
    from twilio.request_validator import RequestValidator

    signature = RequestValidator(d["secret"]).compute_signature(d["url"], Form(d["body"]))
    return {"content-type": "application/x-www-form-urlencoded", "x-twilio-signature": signature}


def twilio(d):
    from twilio.request_validator import RequestValidator

    return RequestValidator(d["secret"]).validate(d["url"], Form(d["body"]), d["headers"]["x-twilio-signature"])


def square_made(d):
    return {"x-square-hmacsha256-signature": base64_of(d["secret"], d["url"], d["body"])}


def square(d):
    from square.utils.webhooks_helper import verify_signature

    return verify_signature(
        request_body=d["body"].decode(),
        signature_header=d["headers"]["x-square-hmacsha256-signature"],
        signature_key=d["secret"],
        notification_url=d["url"],
    )


def hubspot_made(version):
    def make(d):
        from hubspot.utils.signature import Signature

        t = str(d["at"])
        signature = Signature.get_signature(
            d["secret"], d["body"].decode(), version, http_uri=d["url"], http_method="POST", timestamp=t
        )
        if version == "v3":
            return {"x-hubspot-request-timestamp": t, "x-hubspot-signature-v3": signature}
        return {"x-hubspot-signature-version": version, "x-hubspot-signature": signature}

    return make


def hubspot(version):
    def verify(d):
        from hubspot.utils.signature import Signature

        header = "x-hubspot-signature-v3" if version == "v3" else "x-hubspot-signature"
        return Signature.is_valid(
            d["headers"][header],
            d["secret"],
            d["body"].decode(),
            http_uri=d["url"],
            signature_version=version,
            timestamp=d["headers"].get("x-hubspot-request-timestamp"),
        )

    return verify


def hubspot_sdk(version, **facts):
    return Sdk(
        f"hubspot-api-client ({version})",
        f"hubspot-{version}",
        package="hubspot-api-client",
        make=hubspot_made(version),
        verify=hubspot(version),
        signs=True,
        **facts,
    )


SDKS = [
    Sdk(
        "twilio",
        "twilio",
        header="x-twilio-signature",
        encoding="base64",
        make=twilio_made,
        verify=twilio,
        body="form",
        url="query",
        signs=True,
    ),
    Sdk(
        "squareup",
        "square",
        header="x-square-hmacsha256-signature",
        encoding="base64",
        make=square_made,
        verify=square,
        url="query",
    ),
    hubspot_sdk("v1", header="x-hubspot-signature", encoding="hex"),
    hubspot_sdk("v2", header="x-hubspot-signature", encoding="hex", url="query"),
    hubspot_sdk("v3", header="x-hubspot-signature-v3", encoding="base64", url="query", age=(0, 170)),
]
