"""A delivery with one bit changed: in its body, or in the value of its signature."""

import base64
import re
import urllib.parse


def flipped(value, dice):
    """The same bytes with one bit changed."""
    at = dice.random.randrange(len(value))
    return value[:at] + bytes([value[at] ^ 1 << dice.random.randrange(8)]) + value[at + 1 :]


def same_form(one, other):
    """Whoever signs forms signs what they say: `%2b` and `%2B` are one delivery."""
    one, other = (urllib.parse.parse_qsl(form.decode("latin-1"), True, encoding="latin-1") for form in (one, other))
    return one == other


def body(delivery, sdk, dice):
    before = base64.b64decode(delivery["body"])
    after = flipped(before, dice)
    while sdk["body"] == "form" and same_form(before, after):
        after = flipped(before, dice)
    return dict(delivery, body=base64.b64encode(after).decode())


def decoded(text, encoding):
    if encoding == "hex":
        return bytes.fromhex(text)
    padded = text + "=" * (-len(text) % 4)
    return base64.urlsafe_b64decode(padded) if encoding == "base64url" else base64.b64decode(padded, validate=True)


def encoded(value, encoding):
    if encoding == "hex":
        return value.hex()
    if encoding == "base64url":
        return base64.urlsafe_b64encode(value).decode().rstrip("=")
    return base64.b64encode(value).decode()


def signature(delivery, sdk, dice):
    """A bit of the digest itself, written again as its provider writes it: not one of its spelling."""
    place = sdk["signature"]
    header = delivery["headers"][place["header"]]
    found = re.search(place["pattern"], header)
    digest = flipped(decoded(found[1], place["encoding"]), dice)
    changed = header[: found.start(1)] + encoded(digest, place["encoding"]) + header[found.end(1) :]
    return dict(delivery, headers={**delivery["headers"], place["header"]: changed})


def of(delivery, sdk, dice):
    return [body(delivery, sdk, dice), signature(delivery, sdk, dice)]
