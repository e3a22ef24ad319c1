"""requests, httpx and websocket-client through the proxy: `python_clients.py requests|httpx`."""

import hashlib
import json
import os
import sys
import time
from urllib.parse import unquote, urlsplit

ENV = os.environ
PROXY, ANONYMOUS, BASE, CA = ENV["PROXY"], ENV["PROXY_ANONYMOUS"], ENV["BASE"], ENV["CA"]
HOST, OTHER, DENIED, SIZE = ENV["HOST"], ENV["OTHER"], ENV["DENIED"], int(ENV["SIZE"])
BODY = os.urandom(1 << 16) * (SIZE >> 16)
SUM = hashlib.sha256(BODY).hexdigest()
GOVERNED = {"Authorization": "Bearer " + ENV["GRANT"]}


def same(name, have, want):
    assert have == want, f"{name}: {have!r} is not {want!r}"
    print("ok", name, flush=True)


def both(session, bare, refused, stream):
    """What the two libraries have in common."""
    same("http", session.get(f"http://{HOST}/echo?a=b").json()["path"], "/echo?a=b")
    same("https", session.get(f"https://{HOST}/echo").json()["host"], HOST)
    answer = bare.get(f"{BASE}/echo", headers=GOVERNED).json()
    same("base-url", answer["headers"]["authorization"], "Bearer " + ENV["KEY"])
    for scheme in "http", "https":
        came = {session.get(f"{scheme}://{HOST}/echo").json()["connection"] for _ in range(3)}
        same(f"keep-alive-{scheme}", len(came), 1)
        same(f"upload-{scheme}", upload(session, f"{scheme}://{HOST}/echo", {}), SUM)
        answer = session.get(f"{scheme}://{HOST}/down?bytes={SIZE}")
        same(f"download-{scheme}", hashlib.sha256(answer.content).hexdigest(), answer.headers["x-sha256"])
        answer = session.get(f"{scheme}://{HOST}/redirect?to={scheme}://{OTHER}/echo")
        same(f"redirect-{scheme}", answer.json()["host"], OTHER)
    same("upload-base-url", upload(bare, f"{BASE}/echo", GOVERNED), SUM)
    answer = bare.get(f"{BASE}/redirect?to=/echo&status=307", headers={**GOVERNED, "Tidegate-Follow-Redirects": "3"})
    same("redirect-base-url", answer.json()["path"], "/echo")
    times = [time.monotonic() for line in stream(f"https://{HOST}/events") if line]
    same("events", times[-1] - times[0] > 0.3, True)
    same("refused", refused(session, f"https://{DENIED}/"), 403)
    same("unknown-base-url", bare.get(f"{BASE}/echo").status_code, 401)


def upload(session, url, headers):
    """In pieces and without a length, as a body that is produced goes out."""
    pieces = (BODY[at : at + 65536] for at in range(0, SIZE, 65536))
    if session.__module__.startswith("requests"):
        # Before 2.29 it sends no proof with such a body in absolute form.
        send = {"data": BODY if url.startswith(f"http://{HOST}") else pieces}
    else:
        send = {"content": pieces}
    return session.put(url, headers=headers, **send).json()["sha256"]


def with_requests():
    import requests

    session = requests.Session()
    session.proxies, session.verify = {"http": PROXY, "https": PROXY}, CA
    bare = requests.Session()

    def refused(session, url):
        try:
            return session.get(url).status_code
        except requests.exceptions.ProxyError as error:
            return 403 if "403" in str(error) else str(error)

    both(session, bare, refused, lambda url: session.get(url, stream=True).iter_lines(chunk_size=1))
    try:
        requests.get(f"https://{HOST}/", proxies={"https": ANONYMOUS}, verify=CA)
    except requests.exceptions.ProxyError as error:
        same("unknown", "407" in str(error), True)
    ENV.update(HTTPS_PROXY=PROXY, REQUESTS_CA_BUNDLE=CA)
    same("environment", requests.get(f"https://{HOST}/echo").json()["host"], HOST)
    web_socket()


def with_httpx():
    import httpx

    patient = {"timeout": 60.0, "follow_redirects": True, "trust_env": False}
    session = httpx.Client(proxies=PROXY, verify=CA, **patient)
    bare = httpx.Client(**patient)

    def refused(session, url):
        try:
            return session.get(url).status_code
        except httpx.ProxyError as error:
            return 403 if "403" in str(error) else str(error)

    def stream(url):
        with session.stream("GET", url) as answer:
            yield from answer.iter_lines()

    both(session, bare, refused, stream)
    try:
        httpx.Client(proxies=ANONYMOUS, verify=CA, trust_env=False).get(f"https://{HOST}/")
    except httpx.ProxyError as error:
        same("unknown", "407" in str(error), True)
    ENV.update(HTTPS_PROXY=PROXY)
    same("environment", httpx.Client(verify=CA, timeout=60.0).get(f"https://{HOST}/echo").json()["host"], HOST)


def web_socket():
    import websocket

    proxy = urlsplit(PROXY)
    socket = websocket.create_connection(
        f"wss://{HOST}/ws",
        http_proxy_host=proxy.hostname,
        http_proxy_port=proxy.port,
        http_proxy_auth=(proxy.username, unquote(proxy.password)),
        proxy_type="http",
        sslopt={"ca_certs": CA},
        timeout=60,
    )
    socket.send("x" * 1000)
    same("websocket-wss", socket.recv(), "x" * 1000)
    socket.close()
    # The WebSocket of a connection: the credential is attached to the handshake.
    base = BASE.replace("http://", "ws://")
    socket = websocket.create_connection(f"{base}/ws", header=[f"Authorization: {GOVERNED['Authorization']}"], timeout=60)
    socket.send(json.dumps({"over": "base"}))
    same("websocket-base-url", json.loads(socket.recv()), {"over": "base"})
    socket.close()


{"requests": with_requests, "httpx": with_httpx}[sys.argv[1]]()
