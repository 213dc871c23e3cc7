"""A server that speaks MySQL's protocol and answers queries as it likes: it gets no file, and the run ends with an error that names it."""

import contextlib
import socket
import struct
import threading

import pytest

GREETING = (
    b"\x0a8.0.0\0" + struct.pack("<I", 1) + b"a" * 8 + b"\0" + struct.pack("<HBHH", 0xF7FF, 45, 2, 0x8081)
    + bytes([21]) + b"\0" * 10 + b"b" * 12 + b"\0mysql_native_password\0"
)  # fmt: skip
FINE = b"\0\0\0\2\0\0\0"


def read_packet(connection):
    """Return a packet of the client, None after the last one."""
    head = b""
    while len(head) < 4:
        if not (more := connection.recv(4 - len(head))):
            return None
        head += more
    left, data = int.from_bytes(head[:3], "little"), b""
    while len(data) < left:
        if not (more := connection.recv(left - len(data))):
            return None
        data += more
    return data


def send(connection, number, payload):
    connection.sendall(len(payload).to_bytes(3, "little") + bytes([number]) + payload)


class Server:
    """A server whose answer to the query with a number is another one; `said` is all that clients sent."""

    def __init__(self, answer, at):
        self.answer, self.at, self.said = answer, at, []
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listening.accept()
                with connection, contextlib.suppress(OSError):
                    connection.settimeout(60)
                    self._talk(connection)

    def _talk(self, connection):
        send(connection, 0, GREETING)
        self.said.append(read_packet(connection))
        send(connection, 2, FINE)
        queries = 0
        while (packet := read_packet(connection)) is not None:
            self.said.append(packet)
            own = packet[:1] == b"\x03" and b"AUTOCOMMIT" not in packet and b"NAMES" not in packet
            send(connection, 1, self.answer if own and queries == self.at else FINE)
            queries += own

    def close(self):
        self.listening.shutdown(socket.SHUT_RDWR)
        self.listening.close()
        self.thread.join(60)


@pytest.fixture
def serving():
    """Return a function that starts a server."""
    servers = []

    def start(answer, at):
        servers.append(Server(answer, at))
        return servers[-1]

    yield start
    for each in servers:
        each.close()


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("command", ["run", "check", "plan"])
def test_no_file_is_sent_to_a_server_that_asks_for_one(shop, serving, command, at):
    secret = shop.write("secret.txt", "TOPSECRET\n")
    server = serving(b"\xfb" + str(secret).encode(), at)
    shop.write("p.yaml", pipeline(server))
    found = shop(command, "p.yaml")
    assert (found.code, found.out) == (3, ""), found
    assert "the server asks for a file of this machine in place of an answer; no file was sent" in found.err
    assert found.err.startswith("p.yaml:2:")
    assert not any(b"TOPSECRET" in each for each in server.said if each)
    assert len([each for each in server.said if each]) > at


@pytest.mark.parametrize(
    "answer",
    [
        b"\x05" + b"\xff" * 9,
        b"\xfd\xff\xff\xff",
        b"\x01",
        b"",
        b"\xfe" + b"\xff" * 20,
        b"\0",
        b"\xff",
        b"\xff\x01\0#abcde\xff\xfe",
    ],
    ids=lambda answer: answer.hex() or "empty",
)
def test_an_answer_of_no_protocol_is_an_error_of_the_input(shop, serving, answer, monkeypatch):
    monkeypatch.setenv("DDCLI_DATABASE_TIMEOUT", "1")
    server = serving(answer, 1)
    shop.write("p.yaml", pipeline(server))
    found = shop("run", "p.yaml")
    assert (found.code, found.out) == (3, ""), found
    assert "the database can't be read" in found.err


def pipeline(server):
    place = f"{{database: 'mysql://me@127.0.0.1:{server.port}/d', table: t}}"
    return f"clock: arrival\ninputs: {{a: {place}}}\noutputs: {{a: out/}}\n"
