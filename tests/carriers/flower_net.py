"""What the Flower tests run against: agents behind a small HTTP door, a real SuperLink, real SuperNodes."""

from __future__ import annotations

import base64
import contextlib
import datetime
import hmac
import http.server
import importlib.util
import ipaddress
import json
import os
import queue
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import pytest

from feducb.privacy.terms import Terms
from feducb.protocol import messages
from feducb.protocol.parcels import Parcel, ParcelKind
from feducb.storage import AgentStore

SOURCE = Path(__file__).parents[2] / "src"
APP = Path(__file__).parents[2] / "examples" / "flower"
BINARIES = Path(sys.executable).parent
_COMMANDS = ("flwr", "flower-superlink", "flower-supernode")


def require_flower() -> None:
    """Skip the test where Flower is not installed; CI must have it."""
    present = all((BINARIES / name).exists() for name in _COMMANDS)
    if not present or importlib.util.find_spec("flwr") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("Flower is not installed, and CI must have it: pip install 'feducb[flower]'")
        pytest.skip("Flower is not installed: pip install 'feducb[flower]'")


class Site:
    """An agent's store behind the three calls of its HTTP API, all in one thread, as the store demands."""

    def __init__(self, folder: Path, terms: Terms, *, tls: tuple[Path, Path] | None = None) -> None:
        folder.mkdir()
        self.key_file = folder / "operator.key"
        self.key_file.write_text(f"key-of-{folder.name}\n", encoding="utf-8")
        self.inbox: list[bytes] = []
        self.extra: list[bytes] = []  # put in front of the outbox: what a broken agent would offer
        self.named = True  # the outbox is an object with items, else a bare list
        self.refused = 0
        self._jobs: queue.Queue[tuple[Callable[[AgentStore], Any], Future[Any]]] = queue.Queue()
        self._stop = threading.Event()
        started: Future[int] = Future()
        self._thread = threading.Thread(target=self._serve, args=(folder / "agent.db", terms, tls, started))
        self._thread.start()
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://127.0.0.1:{started.result(timeout=120)}"

    def do(self, job: Callable[[AgentStore], Any]) -> Any:
        """Have the agent's own thread do something with its store."""
        done: Future[Any] = Future()
        self._jobs.put((job, done))
        return done.result(timeout=120)

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def _serve(self, path: Path, terms: Terms, tls: tuple[Path, Path] | None, started: Future[int]) -> None:
        site = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site._answer(self, store)

            def do_POST(self) -> None:
                site._answer(self, store)

            def log_message(self, *_: object) -> None:
                pass

        with (
            AgentStore.open(path, terms) as store,
            http.server.HTTPServer(("127.0.0.1", 0), Handler) as server,
        ):
            if tls is not None:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(*tls)
                server.socket = context.wrap_socket(server.socket, server_side=True)
            server.timeout = 0.05
            started.set_result(server.server_address[1])
            while not self._stop.is_set():
                server.handle_request()
                while not self._jobs.empty():
                    job, done = self._jobs.get()
                    done.set_result(job(store))

    def _answer(self, request: http.server.BaseHTTPRequestHandler, store: AgentStore) -> None:
        key = self.key_file.read_text(encoding="utf-8").strip()
        if not hmac.compare_digest(request.headers.get("Authorization", ""), f"Bearer {key}"):
            self.refused += 1
            return _reply(request, 401, {"detail": "unknown key"})
        length = int(request.headers.get("Content-Length", 0))
        body: Any = json.loads(request.rfile.read(length)) if length else {}
        if (request.command, request.path) == ("GET", "/v1/outbox"):
            waiting = [
                Parcel(ParcelKind.RELEASE, 1, 0, 1, payload) for payload in self.extra
            ] + store.outbox()
            plain = [
                asdict(item) | {"body": None, "payload": base64.b64encode(item.body).decode()}
                for item in waiting
            ]
            return _reply(request, 200, {"items": plain} if self.named else plain)
        if (request.command, request.path) == ("POST", "/v1/outbox/sent"):
            store.mark_sent(body["season"], body["number"], group=body["group"])
            return _reply(request, 200, {})
        if (request.command, request.path) == ("POST", "/v1/inbox"):
            payload = base64.b64decode(body["payload"])
            try:
                messages.decode(payload)
            except ValueError as error:
                return _reply(request, 422, {"detail": str(error)})
            new = payload not in self.inbox
            self.inbox += [payload] * new
            return _reply(request, 200, {"new": new})
        return _reply(request, 404, {"detail": request.path})


def _reply(request: http.server.BaseHTTPRequestHandler, status: int, plain: Any) -> None:
    content = json.dumps(plain).encode()
    request.send_response(status)
    request.send_header("Content-Length", str(len(content)))
    request.end_headers()
    request.wfile.write(content)


class Keys:
    """A certificate authority, a server certificate for loopback, and keys of SuperNodes, as files."""

    def __init__(self, folder: Path) -> None:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        folder.mkdir()
        self.folder = folder
        self.ca, self.certificate, self.key = (
            folder / name for name in ("ca.pem", "server.pem", "server.key")
        )
        authority, server = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test authority")])
        now = datetime.datetime.now(datetime.UTC)

        def builder(subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
            return (
                x509.CertificateBuilder()
                .subject_name(subject)
                .issuer_name(name)
                .public_key(key.public_key())
                .serial_number(x509.random_serial_number())
                .not_valid_before(now - datetime.timedelta(minutes=5))
                .not_valid_after(now + datetime.timedelta(days=1))
            )

        root = (
            builder(name, authority)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(authority, hashes.SHA256())
        )
        addresses = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        leaf = (
            builder(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")]), server)
            .add_extension(x509.SubjectAlternativeName(addresses), critical=False)
            .sign(authority, hashes.SHA256())
        )
        self.ca.write_bytes(root.public_bytes(serialization.Encoding.PEM))
        self.certificate.write_bytes(leaf.public_bytes(serialization.Encoding.PEM))
        self.key.write_bytes(
            server.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )

    def node(self, name: str) -> tuple[Path, Path]:
        """A SuperNode's private and public key, as ``ssh-keygen -t ecdsa -b 384`` makes them."""
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP384R1())
        private, public = self.folder / name, self.folder / f"{name}.pub"
        private.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.OpenSSH,
                serialization.NoEncryption(),
            )
        )
        public.write_bytes(
            key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
        )
        return private, public


class Reached(Protocol):
    """An agent's service, as a SuperNode is told of it."""

    url: str
    key_file: Path


class Network:
    """A SuperLink with TLS and node authentication, SuperNodes, and the flwr command, all as processes."""

    def __init__(self, folder: Path, keys: Keys) -> None:
        self.folder, self.keys = folder, keys
        self.port = free_port()
        self.home = folder / "flwr"
        self.home.mkdir()
        self.options: dict[str, set[str]] = {}  # that commands were last started with
        self._processes: list[subprocess.Popen[bytes]] = []
        # Nothing of this machine's settings reaches Flower: no proxy, no account, no other home.
        self.environment = {
            "PATH": f"{BINARIES}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(folder),
            "PYTHONPATH": str(SOURCE),
            "FLWR_HOME": str(self.home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.5",
            "OPENBLAS_NUM_THREADS": "1",
        }
        (self.home / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "127.0.0.1:{self.port}"\n'
            f'root-certificates = "{keys.ca}"\n',
            encoding="utf-8",
        )

    def start_link(self) -> None:
        self._start(
            "superlink",
            "flower-superlink",
            *("--host", "127.0.0.1", "--port", str(self.port)),
            *("--ssl-ca-certfile", str(self.keys.ca)),
            *("--ssl-certfile", str(self.keys.certificate), "--ssl-keyfile", str(self.keys.key)),
            *("--enable-supernode-auth", "--disable-runtime-dependency-installation"),
            *("--database", str(self.folder / "superlink.db")),
        )
        wait_for(lambda: _listens(self.port), "the SuperLink listens", log=self.log)

    def start_node(
        self,
        name: str,
        site: Reached,
        private_key: Path,
        *more: str,
        environment: dict[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        config = f'agent-url="{site.url}" agent-key-file="{site.key_file}" agent-ca-file="{self.keys.ca}"'
        return self._start(
            name,
            "flower-supernode",
            *("--superlink", f"127.0.0.1:{self.port}", "--root-certificates", str(self.keys.ca)),
            *("--auth-supernode-private-key", str(private_key)),
            *("--port", str(free_port()), "--node-config", config, *more),
            environment=environment,
        )

    def flwr(self, *arguments: str) -> str:
        """Run the flwr command; returns what it wrote."""
        done = subprocess.run(
            [BINARIES / "flwr", *arguments],
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, (arguments, done.stdout, done.stderr, self.log())
        return done.stdout

    def log(self) -> str:
        """What all processes have written so far."""
        return "\n".join(
            f"== {path.name}\n{path.read_text(encoding='utf-8', errors='replace')}"
            for path in sorted(self.folder.glob("*.log"))
        )

    def processes(self, name: str = "") -> list[int]:
        """Ids of this network's processes, by the home they were given; of one command if named."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                environment = (folder / "environ").read_bytes().split(b"\0")
                command = (folder / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue  # it ended meanwhile, or is not ours
            if f"FLWR_HOME={self.home}".encode() in environment and name in command:
                found.append(int(folder.name))
        return found

    def close(self) -> None:
        """Kill all of it: Flower's processes start others, which are not our children."""
        deadline = time.monotonic() + 120.0
        while (left := self.processes()) and time.monotonic() < deadline:
            for process in left:
                kill(process)
            for started in self._processes:
                started.poll()
            time.sleep(0.1)
        for started in self._processes:
            started.wait(timeout=120)
        assert not self.processes()

    def _start(
        self, name: str, command: str, *arguments: str, environment: dict[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        self.options[command] = {argument for argument in arguments if argument.startswith("--")}
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [BINARIES / command, *arguments],
                env=self.environment | (environment or {}),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._processes.append(process)
        return process


def run_app(network: Network, folder: Path, terms: Terms, **settings: object) -> str:
    """Start the app as docs/flower.md says; returns the run's id."""
    (folder / "terms.json").write_text(terms.to_json(), encoding="utf-8")
    config: dict[str, object] = {"book": folder / "book.db", "terms": folder / "terms.json"}
    config |= {name.replace("_", "-"): value for name, value in settings.items()}
    given = " ".join(
        f'{key}="{value}"' if isinstance(value, Path) else f"{key}={value}" for key, value in config.items()
    )
    told = network.flwr("run", str(APP), "--run-config", given, "--format", "json")
    return str(json.loads(told)["run-id"])


def wait_for_reports(network: Network, run: str, *texts: str) -> None:
    def said() -> bool:
        log = network.flwr("log", run, "--show")
        return all(text in log for text in texts)

    wait_for(said, f"the run's log has {texts}", log=network.log, every=4.0)


def kill(process: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def wait_for(
    ready: Callable[[], object],
    what: str,
    *,
    log: Callable[[], str],
    every: float = 0.1,
    seconds: float = 600.0,
) -> None:
    """Wait until something holds; fail with everybody's log if it never does."""
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}\n{log()}"
        time.sleep(every)


def free_port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        return int(opened.getsockname()[1])


def _listens(port: int) -> bool:
    with socket.socket() as opened:
        return opened.connect_ex(("127.0.0.1", port)) == 0
