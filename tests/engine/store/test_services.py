"""Object stores that are not there, refuse, write over objects, or answer only now and then."""

import pickle
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import ClassVar

import pytest

from fedfisher_core.engine import installed
from fedfisher_core.engine.errors import InputError
from fedfisher_core.engine.store import bucket as buckets
from fedfisher_core.engine.store import open_store
from fedfisher_core.engine.store.bucket import Bucket, BucketError
from tests.servers import answering


def test_a_bucket_that_is_not_there_is_named(url: str) -> None:
    with pytest.raises(InputError, match=r"^run\.store='s3://no-such-bucket' can't be read: .*NoSuchBucket.*\(by htt"):
        open_store("s3://no-such-bucket").prepare()


def test_refused_credentials_are_named_without_the_secret(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a-wrong-secret")
    with pytest.raises(
        InputError, match=rf"^run\.store='{url}' can't be read: .*SignatureDoesNotMatch.*\(by http:"
    ) as error:
        open_store(url).prepare()
    assert "secret" not in str(error.value)


def test_missing_credentials_are_named(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(Path.cwd()))
    with pytest.raises(
        InputError, match=rf"^run\.store='{url}' can't be read: .*[Cc]redentials; allowed: AWS_ACCESS_KEY_ID and "
    ):
        open_store(url).prepare()


def test_a_service_that_is_not_there_is_named(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buckets, "_PAUSES_SECONDS", (0,))
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(InputError, match=rf"^run\.store='{url}' can't be read: .*127\.0\.0\.1:9"):
        open_store(url).prepare()


@pytest.mark.parametrize("address", ["localhost:9000", "me:hidden@localhost:9000"])
def test_an_address_of_a_service_that_is_none_is_named(url: str, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", address)
    with pytest.raises(
        InputError, match=rf"^run\.store='{url}' can't be read: AWS_ENDPOINT_URL is no address"
    ) as error:
        open_store(url).prepare()
    assert "hidden" not in str(error.value)


def test_a_password_in_the_address_of_a_service_is_not_shown(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buckets, "_PAUSES_SECONDS", ())
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://me:hidden@127.0.0.1:9")
    with pytest.raises(InputError, match=r'can\'t be read: .*"http://127\.0\.0\.1:9/') as error:
        open_store(url).prepare()
    assert "hidden" not in str(error.value)


def test_a_missing_library_is_named(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installed, "_is_installed", lambda name: False)
    with pytest.raises(
        InputError, match=rf"^run\.store='{url}' needs boto3, not installed; allowed: pip install 'fedfisher\[s3\]'"
    ):
        open_store(url).prepare()


def test_a_service_that_writes_over_objects_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with answering(Careless) as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        with pytest.raises(
            InputError, match=r"writes over objects though it is asked not to \(If-None-Match\); allowed"
        ):
            open_store(url).prepare()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"", r"an answer \(by http://127.*\) has no length; allowed: a service that speaks S3 in AWS_ENDPOINT_URL"),
        (b"<html>" + 2000 * b" ", r"has an answer for what is not there: .* has 2006 bytes; allowed: 1024; allowed: a"),
    ],
    ids=["no length", "a page"],
)
def test_what_answers_but_does_not_speak_s3_is_named(
    url: str, monkeypatch: pytest.MonkeyPatch, answer: bytes, message: str
) -> None:
    monkeypatch.setattr(Console, "answer", answer)
    with answering(Console) as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        with pytest.raises(InputError, match=message):
            open_store(url).prepare()


def test_a_write_whose_answer_was_lost_is_no_reason_to_refuse_a_bucket(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_new, answers = Bucket.write_new, [False]

    def losing(bucket: Bucket, name: str, content: bytes) -> bool:
        return write_new(bucket, name, content) and (answers.pop() if answers else True)

    monkeypatch.setattr(Bucket, "write_new", losing)
    open_store(url).prepare()
    assert not answers


@pytest.fixture
def moody(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[type["Moody"]]:
    """A service whose next answers a test chooses."""
    monkeypatch.setattr(buckets, "_PAUSES_SECONDS", (0, 0, 0))
    monkeypatch.setattr(buckets, "_READ_SECONDS", 0.5)
    with answering(Moody) as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        Moody.asked, Moody.moods = 0, []
        yield Moody


def test_what_passes_is_asked_again_until_the_whole_is_there(url: str, moody: type["Moody"]) -> None:
    moody.moods = ["unavailable", "cut", "slow"]
    assert Bucket(url).read("name", most_bytes=100) == b"whole"
    assert moody.asked == 4


@pytest.mark.parametrize("mood", ["unavailable", "cut"])
def test_a_service_that_stays_away_is_no_mistake_of_the_user(url: str, moody: type["Moody"], mood: str) -> None:
    moody.moods = [mood] * 4
    with pytest.raises(BucketError, match=rf"^run\.store='{url}' can't be read: ") as error:
        Bucket(url).read("name", most_bytes=100)
    assert moody.asked == 4
    assert not isinstance(error.value, InputError)
    assert str(pickle.loads(pickle.dumps(error.value))) == str(error.value)  # noqa: S301 - it was pickled here.


def test_what_no_other_try_would_change_is_asked_once(url: str, moody: type["Moody"]) -> None:
    moody.moods = ["forbidden"]
    with pytest.raises(InputError, match="AccessDenied"):
        Bucket(url).read("name", most_bytes=100)
    assert moody.asked == 1


class Moody(BaseHTTPRequestHandler):
    """A service whose answers are refused or cut off as long as it is told to, and whole after that."""

    asked = 0
    moods: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        mood = Moody.moods[Moody.asked] if Moody.asked < len(Moody.moods) else "well"
        Moody.asked += 1
        body = b"<Error><Code>AccessDenied</Code></Error>" if mood == "forbidden" else b"whole"
        self.send_response({"unavailable": 503, "forbidden": 403}.get(mood, 200))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if mood == "slow":
            self.wfile.write(body[:2])
            self.wfile.flush()
            time.sleep(1)
        self.wfile.write(body[:2] if mood in ("cut", "slow") else body)
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


class Console(BaseHTTPRequestHandler):
    """A server that has a page for everybody, or nothing."""

    answer = b""

    def do_GET(self) -> None:
        self.send_response(200)
        if self.answer:
            self.send_header("Content-Length", str(len(self.answer)))
        self.end_headers()
        self.wfile.write(self.answer)

    def log_message(self, *_: object) -> None:
        pass


class Careless(BaseHTTPRequestHandler):
    """A service that has nothing, and takes everything."""

    def do_GET(self) -> None:
        body = b"<Error><Code>NoSuchKey</Code><Message>none</Message></Error>"
        self.send_response(404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_DELETE(self) -> None:
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass
