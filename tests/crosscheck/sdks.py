"""Where SDKs are installed, and the processes that run them: one for each SDK and batch."""

import hashlib
import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).resolve().parent
BATCH_SECONDS = 300


def installed(mark, wanted, install):
    """Installs where what is wanted is not what was installed last."""
    digest = hashlib.sha256(wanted.read_bytes()).hexdigest()
    if not mark.exists() or mark.read_text() != digest:
        install()
        mark.write_text(digest)


def environment():
    """SDKs find nothing of whoever runs this: no keys, no proxies."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    return {**kept, "NODE_ENV": "production", "NO_COLOR": "1"}


class Language:
    """The SDKs of one registry."""

    def __init__(self, name, directory):
        self.name = name
        self.directory = Path(directory) / name
        self.directory.mkdir(parents=True, exist_ok=True)
        getattr(self, f"install_{name}")()
        self.sdks = json.loads(self.run("describe"))

    def install_npm(self):
        wanted = HERE / "package.json"

        def install():
            (self.directory / "package.json").write_bytes(wanted.read_bytes())
            # No script of a package runs: none of these needs one for what is asked here.
            command = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
            subprocess.run(command, cwd=self.directory, check=True)

        installed(self.directory / "installed", wanted, install)
        # Modules are looked for from where they are imported.
        for module in (HERE / "node").glob("*.mjs"):
            (self.directory / module.name).write_bytes(module.read_bytes())
        self.command = ["node", str(self.directory / "worker.mjs")]

    def install_pypi(self):
        wanted = HERE / "requirements.txt"
        place = self.directory / "venv"

        def install():
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
            # No code of a package runs while it is installed.
            command = [str(place / "bin" / "pip"), "install", "-q", "--only-binary", ":all:", "-r", str(wanted)]
            subprocess.run(command, check=True)

        installed(self.directory / "installed", wanted, install)
        self.command = [str(place / "bin" / "python"), "-B", str(HERE / "python" / "worker.py")]

    def run(self, *words):
        ran = subprocess.run(
            [*self.command, *words], env=environment(), capture_output=True, timeout=BATCH_SECONDS, cwd=self.directory
        )
        if ran.returncode != 0:
            raise SystemExit(f"{self.name} {words}: {ran.stderr.decode()[-3000:]}")
        return ran.stdout.decode()

    def batch(self, op, sdk, items):
        given, out = self.directory / "in.json", self.directory / "out.json"
        given.write_text(json.dumps(items), encoding="utf-8")
        self.run(op, sdk["name"], str(given), str(out))
        return json.loads(out.read_text(encoding="utf-8"))

    def version(self, sdk):
        package = sdk.get("package") or sdk["name"]
        if self.name == "npm":
            return json.loads((self.directory / "node_modules" / package / "package.json").read_text())["version"]
        paths = [str(path) for path in (self.directory / "venv" / "lib").glob("python*/site-packages")]
        wanted = package.replace("-", "_").lower()
        found = [one for one in metadata.distributions(path=paths) if one.name.replace("-", "_").lower() == wanted]
        return found[0].version
