"""What a family says of an SDK, and the recipes: HMAC of Python's own, and nothing of the appliance."""

import base64
import hashlib
import hmac
from dataclasses import dataclass
from typing import Any, Callable


def mac(secret, *parts, algorithm="sha256"):
    key = secret.encode() if isinstance(secret, str) else secret
    message = b"".join(part.encode() if isinstance(part, str) else part for part in parts)
    return hmac.new(key, message, getattr(hashlib, algorithm))


def hexadecimal(secret, *parts):
    return mac(secret, *parts).hexdigest()


def base64_of(secret, *parts):
    return base64.b64encode(mac(secret, *parts).digest()).decode()


def seconds(at):
    """Unix seconds of milliseconds, as providers write them."""
    return str(at // 1000)


@dataclass
class Sdk:
    name: str
    scheme: str
    header: str
    encoding: str
    # Given a delivery without headers: its headers.
    make: Callable[[dict], dict]
    # Given the delivery: is it taken?
    verify: Callable[[dict], Any]
    package: str = ""
    pattern: str = "(.+)"
    secret: str = "text"
    body: str = "text"
    url: str = "plain"
    age: tuple = (0, 0)
    signs: bool = False
    load: Callable[[], None] = lambda: None

    def facts(self):
        signature = {"header": self.header, "encoding": self.encoding, "pattern": self.pattern}
        kept = ("name", "package", "scheme", "secret", "body", "url", "age", "signs")
        return dict({key: getattr(self, key) for key in kept}, signature=signature)
