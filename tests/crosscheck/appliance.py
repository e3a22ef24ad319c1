"""The appliance under test: its configuration, its life, what it answers, and what it signs."""

import base64
import http.client
import json
import os
import socket
import subprocess
import time
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path

HOST = "hooks.example.com"
PATIENCE_SECONDS = 120
SENDERS = 8


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


class Appliance:
    """One gateway with a tenant for each SDK and an endpoint for each delivery."""

    def __init__(self, binary, directory):
        self.binary = str(binary)
        self.directory = Path(directory)
        self.port = free_port()
        self.admin = free_port()
        self.process = None
        (self.directory / "tenants").mkdir(parents=True)

    def tenant(self, tenant, scheme, secrets):
        """Endpoints of one scheme, each with a secret of its own; their ids and secrets."""
        place = self.directory / "tenants" / f"{tenant}.secrets"
        place.mkdir(mode=0o700)
        lines = [f'tenant = "{tenant}"']
        endpoints = []
        for number, secret in enumerate(secrets):
            endpoint = f"wh_{tenant}{number:05}"
            file = place / str(number)
            file.touch(mode=0o600)
            file.write_text(secret, encoding="utf-8")
            lines += ["", "[[endpoint]]", f'id = "{endpoint}"', f'scheme = "{scheme}"']
            lines += [f'secrets = [{{ value = "secret:{number}" }}]']
            endpoints.append(endpoint)
        (self.directory / "tenants" / f"{tenant}.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return endpoints

    def start(self):
        # Every second delivery is wrong on purpose, and all come from one address.
        most = 1_000_000
        unauthenticated = f"failures_per_minute = {most}\nburst = {most}\nverified_failures_per_minute = {most}\n"
        text = f"""
[gateway]
listen = ["127.0.0.1:{self.port}"]
public_url = "https://{HOST}"

[log]
directory = "{self.directory / 'log'}"
reserve_bytes = "64MiB"

[limits.unauthenticated]
{unauthenticated}verified_burst = {most}

[admin]
listen = "127.0.0.1:{self.admin}"

[tenants]
directory = "tenants"
"""
        config = self.directory / "tidegate.toml"
        config.write_text(text, encoding="utf-8")
        with open(self.directory / "stderr", "wb") as errors:
            self.process = subprocess.Popen(
                [self.binary, "run", "--config", str(config)], stdout=errors, stderr=subprocess.STDOUT
            )
        until = time.monotonic() + PATIENCE_SECONDS
        while not self.is_ready():
            if self.process.poll() is not None or time.monotonic() > until:
                raise SystemExit("the appliance did not start:\n" + (self.directory / "stderr").read_text()[-4000:])
            time.sleep(0.2)

    def is_ready(self):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.admin, timeout=5)
            connection.request("GET", "/readyz")
            return connection.getresponse().status == 200
        except OSError:
            return False

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(PATIENCE_SECONDS)

    def post(self, deliveries):
        """The status of each, in order; several at a time."""

        def some(part):
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
            answers = []
            for delivery in part:
                parts = urllib.parse.urlsplit(delivery["url"])
                target = parts.path + (f"?{parts.query}" if parts.query else "")
                headers = {"host": HOST, "content-type": "application/json", **delivery["headers"]}
                connection.request("POST", target, body=base64.b64decode(delivery["body"]), headers=headers)
                answer = connection.getresponse()
                answer.read()
                answers.append(answer.status)
            connection.close()
            return answers

        with ThreadPoolExecutor(SENDERS) as pool:
            parts = list(pool.map(some, [deliveries[start::SENDERS] for start in range(SENDERS)]))
        answers = [None] * len(deliveries)
        for start, part in enumerate(parts):
            answers[start::SENDERS] = part
        return answers

    def sign(self, scheme, case):
        """What `tidegate sign` makes of a case, or why it does not."""
        at = datetime.fromtimestamp(case["at"] / 1000, timezone.utc).isoformat(timespec="milliseconds")
        command = [self.binary, "sign", "--json", "--scheme", scheme, "--secret", "env:SECRET", "--body", "-"]
        command += ["--url", case["url"], "--at", at.replace("+00:00", "Z")]
        environment = {**os.environ, "SECRET": case["secret"]}
        ran = subprocess.run(command, input=base64.b64decode(case["body"]), env=environment, capture_output=True)
        if ran.returncode != 0:
            raise SystemExit(f"tidegate sign --scheme {scheme}: {ran.stderr.decode()}")
        answer = json.loads(ran.stdout)
        headers = {name.lower(): value for name, value in answer["headers"]}
        return dict(case, url=answer["url"], headers=headers)
