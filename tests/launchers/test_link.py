"""The connection between a launcher and its agents."""

import multiprocessing.connection
import secrets
import socket
import threading

import pytest

from launchers import link as links
from launchers.link import Door, Link, LinkLost, knock
from tests.support import wait_for


def two_ends(patience: float) -> tuple[Link, Link]:
    """Returns two ends that bear silence for `patience` seconds."""
    listener = multiprocessing.connection.Listener(("127.0.0.1", 0), "AF_INET")
    one = multiprocessing.connection.Client(listener.address, "AF_INET")
    return Link(one, patience), Link(listener.accept(), patience)


def test_what_one_end_sends_the_other_gets_in_order() -> None:
    one, other = two_ends(5.0)
    for number in range(3):
        one.send(number)
    messages = other.messages()
    assert [next(messages) for _ in range(3)] == [0, 1, 2]


def test_an_end_whose_process_is_gone_is_lost_at_once() -> None:
    one, other = two_ends(60.0)
    one.close()
    with pytest.raises(LinkLost, match="its processes are gone"):
        next(other.messages())


def test_an_end_that_only_shows_life_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "BEAT_SECONDS", 0.05)
    one, other = two_ends(2.0)
    timer = threading.Timer(3.0, one.send, ["late"])
    timer.start()
    assert next(other.messages()) == "late"


def test_an_end_that_is_silent_for_too_long_is_lost() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        plain = socket.create_connection(server.getsockname())
        mute, _ = server.accept()
        connection = multiprocessing.connection.Connection(plain.detach())
        with pytest.raises(LinkLost, match=r"nothing was heard of it for \d+ s"):
            next(Link(connection, 2.0).messages())
        mute.close()


def test_who_does_not_know_the_key_is_not_let_in() -> None:
    door = Door("127.0.0.1", secrets.token_bytes(32))
    links_in: list[Link] = []
    threading.Thread(target=lambda: links_in.append(door.wait()), daemon=True).start()
    with pytest.raises((multiprocessing.AuthenticationError, OSError, EOFError)):
        knock("127.0.0.1", door.port, b"guessed")
    knock("127.0.0.1", door.port, door.key).send("hello")
    wait_for(lambda: links_in)
    assert next(links_in[0].messages()) == "hello"
