"""Random secrets, bodies and clocks: what a delivery is made of before anybody signs it."""

import base64
import json
import random
import string
import time
import urllib.parse

PRINTABLE = string.ascii_letters + string.digits + "!#$%&()*+-./:;<=>?@[]^_{|}~"
WORDS = ["größe", "☃", "日本語", "🦀🌊", "naïve", "Ωμέγα", "plain", "a b", "x" * 300, "tab\there", 'quo"te', "back\\slash"]


class Dice:
    """Everything that is random in a run, from one seed: a run that disagrees can be repeated."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def text(self, least, most, of=PRINTABLE):
        return "".join(self.random.choice(of) for _ in range(self.random.randint(least, most)))

    def secret(self, kind):
        if kind == "text":
            middle = self.random.choice(["", "", "ü", "☃", "密"])
            return self.text(16, 40) + middle + self.text(1, 24, string.ascii_letters)
        if kind == "ascii":
            return self.text(24, 64, string.ascii_letters + string.digits)
        if kind == "whsec-text":
            return "whsec_" + self.text(32, 32, string.ascii_letters + string.digits)
        encoded = base64.b64encode(self.random.randbytes(self.random.randint(24, 64))).decode()
        return {"base64": encoded, "whsec": "whsec_" + encoded}[kind]

    def value(self, depth=0):
        kinds = [lambda: self.random.choice(WORDS), lambda: self.random.randint(-10**9, 10**9), lambda: None]
        kinds += [lambda: self.random.choice([True, False]), lambda: self.text(0, 40)]
        if depth < 3:
            kinds.append(lambda: [self.value(depth + 1) for _ in range(self.random.randint(0, 4))])
            kinds.append(lambda: self.fields(depth + 1))
        return self.random.choice(kinds)()

    def fields(self, depth=0):
        names = [f"{self.text(1, 8, string.ascii_lowercase)}{n}" for n in range(self.random.randint(1, 6))]
        return {name: self.value(depth) for name in names}

    def json(self, fields):
        """As some provider would write it: with escapes or without, in one line or in several, also of CRLF."""
        text = json.dumps(
            fields, ensure_ascii=self.random.random() < 0.3, indent=self.random.choice([None, None, 2])
        )
        return text.replace("\n", "\r\n") if self.random.random() < 0.5 else text

    def body(self, kind, at):
        if kind == "canonical":
            # For SDKs that are given what was read, and write it again.
            fields = {key: value for key, value in self.fields().items() if value != "tab\there"}
            return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()
        if kind in ("json", "linear", "pusher", "liveblocks", "gocardless"):
            own = {
                "json": {"id": "evt_1", "type": "test", "object": "event"},
                "linear": {"webhookTimestamp": at, "type": "Issue"},
                "pusher": {"time_ms": at, "events": []},
                "liveblocks": {"type": "userEntered"},
                "gocardless": {"events": []},
            }[kind]
            return self.json({**self.fields(), **own}).encode()
        if kind == "form":
            pairs = [(f"F{n}", self.random.choice([*WORDS, "", self.text(0, 30)])) for n in range(1, 6)]
            pairs += [("Again", self.text(1, 9, string.ascii_letters)) for _ in range(self.random.randint(0, 3))]
            self.random.shuffle(pairs)
            return urllib.parse.urlencode(pairs).encode()
        shapes = [
            lambda: self.json({"event": self.fields()}).encode(),
            lambda: "\r\n".join(self.random.choice(WORDS) for _ in range(4)).encode() + b"\r\n",
            lambda: self.random.choice([b"{}", b"0", b"x", b" ", b"\n", b"\r\n", b'""']),
        ]
        if kind == "bytes":
            shapes.append(lambda: b"\xff" + self.random.randbytes(self.random.randint(0, 200)))
        return self.random.choice(shapes)()

    def target(self, kind, path):
        if kind != "query":
            return path
        escaped = urllib.parse.quote(self.random.choice(WORDS), safe="")
        return f"{path}?a={escaped.replace('%3A', '')}&b={self.text(1, 8, string.ascii_letters)}"

    def case(self, sdk, secret, url):
        """One delivery, as of now."""
        oldest = sdk["age"][1]
        age = self.random.randint(sdk["age"][0] * 1000, oldest * 1000) if oldest else 0
        at = int(time.time() * 1000) - age
        return {
            "secret": secret,
            "url": self.target(sdk.get("url", "plain"), url),
            "body": base64.b64encode(self.body(sdk.get("body", "text"), at)).decode(),
            "at": at,
            "age": age,
            "id": "msg_" + self.text(12, 24, string.ascii_letters + string.digits),
        }


def in_order(facts):
    """What a family left unsaid."""
    return {"secret": "text", "body": "text", "url": "plain", "age": [0, 0], **facts}
