"""Data sets are found in their order, fetched over bad lines, checked before use, and never escape their folder."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from kreiss import InputError
from kreiss.cli import main
from kreiss.errors import MissingExtra
from kreiss.tasks import Characters, Pixels
from kreiss.tasks.sources import data
from kreiss.tasks.sources.archives import unpack
from kreiss.tasks.sources.data import DataSet
from kreiss.tasks.sources.download import PIECE

CONTENT = {"one.txt": np.random.RandomState(0).bytes(100_000), "two.txt": b"two\n"}
SUMS = {name: hashlib.sha256(content).hexdigest() for name, content in CONTENT.items()}
OTHER = hashlib.sha256(b"other").hexdigest()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache and data folder."""
    monkeypatch.setenv("KREISS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("KREISS_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return tmp_path


class Server:
    """A web server whose files, and bad habits, a test sets."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.cut_after: int | None = None  # bytes after which each answer breaks off
        self.asked: list[tuple[str, str | None]] = []  # (path, range)
        self.ranges = True
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_port}"

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        wanted = request.headers.get("Range")
        self.asked.append((request.path, wanted))
        if request.path not in self.files:
            request.send_error(404)
            return
        content = self.files[request.path]
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.ranges else 0
        if start and start >= len(content):
            request.send_error(416)
            return
        request.send_response(206 if start else 200)
        request.send_header("Content-Length", str(len(content) - start))
        request.end_headers()
        end = len(content) if self.cut_after is None else start + self.cut_after
        request.wfile.write(content[start:end])

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


@pytest.fixture
def tiny(here: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """A known set of two files on two mirrors, the first of which sends .gz."""
    mirrors = (f"{server.url}/a/{{name}}.gz", f"{server.url}/b/{{name}}")
    monkeypatch.setitem(data.SETS, "tiny", DataSet("two files", "none", SUMS, mirrors))
    for name, content in CONTENT.items():
        server.files[f"/a/{name}.gz"] = gzip.compress(content)
        server.files[f"/b/{name}"] = content
    return server


def put(folder: Path, content: dict[str, bytes] = CONTENT) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in content.items():
        (folder / name).write_bytes(value)


def left_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def refused(call: object, *arguments: object) -> str:
    """The one sentence, or two, with which a call is refused."""
    with pytest.raises(InputError) as caught:
        call(*arguments)
    said = str(caught.value)
    assert "\n" not in said
    assert said.endswith(".")
    return said


# ---------------------------------------------------------------- the order of places


def test_the_users_folder_comes_before_the_cache_and_that_before_a_download(here, tiny):
    assert data.located("tiny") is None
    data.fetch("tiny")
    assert data.located("tiny") == here / "cache" / "tiny"
    asked = len(tiny.asked)
    put(here / "data" / "tiny")
    assert data.located("tiny") == here / "data" / "tiny"
    assert data.read("tiny", "two.txt") == b"two\n"
    assert data.fetch("tiny") == here / "data" / "tiny"
    assert len(tiny.asked) == asked


def test_a_file_may_be_plain_or_compressed(here, tiny):
    put(here / "data" / "tiny", {f"{name}.gz": gzip.compress(content) for name, content in CONTENT.items()})
    assert data.read("tiny", "one.txt") == CONTENT["one.txt"]
    assert data.verify("tiny") == here / "data" / "tiny"
    assert not tiny.asked


def test_without_a_users_folder_the_cache_is_searched(here, tiny, monkeypatch):
    monkeypatch.delenv("KREISS_DATA")
    put(here / "cache" / "tiny")
    assert data.located("tiny") == here / "cache" / "tiny"
    assert data.folder("tiny") == here / "cache" / "tiny"


def test_an_explicit_path_is_taken_as_it_is(here, tiny):
    put(here / "mine", {"anything": b""})
    assert data.folder("tiny", here / "mine") == here / "mine"
    assert "`path` must be a folder; got" in refused(data.folder, "tiny", here / "nowhere")
    assert not tiny.asked


def test_an_unknown_set_is_refused_with_the_nearest(here):
    assert refused(data.fetch, "mnst").startswith("unknown data set 'mnst'. Did you mean 'mnist'?")


# ---------------------------------------------------------------- downloads


def test_a_download_is_decompressed_checked_and_leaves_nothing_else_behind(here, tiny):
    assert data.read("tiny", "one.txt") == CONTENT["one.txt"]
    assert left_in(here / "cache") == ["tiny/one.txt", "tiny/two.txt"]
    assert [path for path, _ in tiny.asked] == ["/a/one.txt.gz", "/a/two.txt.gz"]


def test_a_terminal_shows_how_far_a_download_is(here, tiny, monkeypatch, capsys):
    data.fetch("tiny")
    assert not capsys.readouterr().err
    (here / "cache" / "tiny" / "one.txt").unlink()
    monkeypatch.setenv("FORCE_COLOR", "1")  # what makes rich take any output for a terminal
    data.fetch("tiny")
    assert "one.txt.gz" in capsys.readouterr().err


def test_a_line_that_breaks_off_is_taken_up_where_it_stopped(here, tiny, monkeypatch):
    tiny.cut_after = 5 * PIECE + 1
    data.fetch("tiny")
    assert (here / "cache" / "tiny" / "one.txt").read_bytes() == CONTENT["one.txt"]
    ranges = [wanted for path, wanted in tiny.asked if path == "/a/one.txt.gz"]
    assert ranges == [None, f"bytes={5 * PIECE}-", f"bytes={10 * PIECE}-"]


def test_a_download_that_was_given_up_goes_on_at_the_next_call(here, tiny):
    tiny.cut_after = 2 * PIECE
    said = refused(data.fetch, "tiny")
    assert "one.txt must come from one of 2 addresses" in said
    assert data.located("tiny") is None
    tiny.cut_after = None
    tiny.asked.clear()
    data.fetch("tiny")
    assert tiny.asked[0] == ("/a/one.txt.gz", f"bytes={6 * PIECE}-")
    assert data.verify("tiny")


def test_a_server_that_knows_no_ranges_starts_over(here, tiny):
    tiny.cut_after = 2 * PIECE
    refused(data.fetch, "tiny")
    tiny.cut_after, tiny.ranges = None, False
    data.fetch("tiny")
    assert data.verify("tiny")


def test_a_part_that_was_whole_already_is_used(here, tiny):
    part = here / "cache" / "tiny" / "partial" / hashlib.sha256(f"{tiny.url}/a/one.txt.gz".encode()).hexdigest()[:16]
    part.parent.mkdir(parents=True)
    part.write_bytes(tiny.files["/a/one.txt.gz"])
    data.fetch("tiny")
    assert data.verify("tiny")
    assert tiny.asked[0][1] == f"bytes={len(tiny.files['/a/one.txt.gz'])}-"
    assert tiny.asked[1][0] == "/a/two.txt.gz"


def test_a_spoilt_part_of_an_earlier_attempt_is_thrown_away(here, tiny):
    part = here / "cache" / "tiny" / "partial" / hashlib.sha256(f"{tiny.url}/a/one.txt.gz".encode()).hexdigest()[:16]
    part.parent.mkdir(parents=True)
    part.write_bytes(b"spoilt")
    data.fetch("tiny")
    assert data.verify("tiny")


def test_the_next_mirror_is_tried_when_one_is_gone_or_wrong(here, tiny):
    del tiny.files["/a/one.txt.gz"]
    tiny.files["/a/two.txt.gz"] = gzip.compress(b"other")
    data.fetch("tiny")
    assert data.verify("tiny")
    assert [path for path, _ in tiny.asked] == ["/a/one.txt.gz", "/b/one.txt", "/a/two.txt.gz", "/b/two.txt"]


@pytest.mark.parametrize(
    "damage",
    [gzip.compress(b"other"), b"not gzip", gzip.compress(CONTENT["two.txt"])[:-4]],
    ids=["other content", "not gzip", "cut short"],
)
def test_what_no_mirror_has_right_is_refused_with_both_checksums_and_not_kept(here, tiny, damage):
    tiny.files["/a/two.txt.gz"] = damage
    tiny.files["/b/two.txt"] = b"other"
    said = refused(data.read, "tiny", "two.txt")
    assert f"the content must have the SHA-256 {SUMS['two.txt']} and has {OTHER}" in said
    assert left_in(here / "cache") == ["tiny/one.txt"]


def test_no_network_is_one_sentence_that_says_what_to_do(here, tiny):
    tiny.http.shutdown()
    tiny.http.server_close()
    said = refused(data.read, "tiny", "two.txt")
    assert "got 127.0.0.1:" in said
    assert "no connection" in said
    assert said.endswith("run kreiss data fetch tiny, or put the files in KREISS_DATA/tiny.")


def test_a_place_that_cannot_be_written_is_one_sentence(here, tiny, monkeypatch):
    (here / "file").write_text("")
    monkeypatch.setenv("KREISS_CACHE", str(here / "file" / "cache"))
    said = refused(data.fetch, "tiny")
    assert "must take the download of one.txt; got Not a directory" in said
    assert "KREISS_CACHE" in said


def test_a_full_disk_is_one_sentence_and_nothing_is_lost(here, tiny, monkeypatch):
    put(here / "cache" / "tiny", {"two.txt": CONTENT["two.txt"]})

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kreiss.tasks.sources.download.shutil.copyfileobj", full)
    assert "must take the download of one.txt; got No space left on device" in refused(data.fetch, "tiny")
    assert (here / "cache" / "tiny" / "two.txt").read_bytes() == CONTENT["two.txt"]
    assert not (here / "cache" / "tiny" / "one.txt").exists()


# ---------------------------------------------------------------- checksums


@pytest.mark.parametrize("place", ["data", "cache"])
def test_a_corrupt_file_is_named_with_both_checksums_and_never_used(here, tiny, place):
    put(here / place / "tiny", {**CONTENT, "two.txt": b"other"})
    for call in (lambda: data.read("tiny", "two.txt"), lambda: data.verify("tiny"), lambda: data.folder("tiny")):
        said = refused(call)
        assert str(here / place / "tiny" / "two.txt") in said
        assert SUMS["two.txt"] in said
        assert OTHER in said
        assert said.endswith("run: kreiss data fetch tiny.")
    assert data.read("tiny", "one.txt") == CONTENT["one.txt"]


def test_fetching_replaces_a_corrupt_file_of_the_cache_and_only_that(here, tiny):
    put(here / "cache" / "tiny", {**CONTENT, "two.txt": b"other"})
    data.fetch("tiny")
    assert data.verify("tiny")
    assert [path for path, _ in tiny.asked] == ["/a/two.txt.gz"]


def test_fetching_never_touches_the_users_own_folder(here, tiny):
    put(here / "data" / "tiny", {**CONTENT, "two.txt": b"other"})
    assert OTHER in refused(data.fetch, "tiny")
    assert (here / "data" / "tiny" / "two.txt").read_bytes() == b"other"
    assert not tiny.asked


def test_a_compressed_file_that_breaks_off_is_named(here, tiny):
    put(here / "data" / "tiny", {"one.txt.gz": gzip.compress(CONTENT["one.txt"])[:-9], "two.txt": b"two\n"})
    assert "one.txt.gz must be readable; got Compressed file ended" in refused(data.read, "tiny", "one.txt")


def test_tasks_check_what_they_read(here):
    put(here / "data" / "ptb", {f"ptb.{part}.txt": b"a b c\n" * 9 for part in ("train", "valid", "test")})
    assert "ptb.train.txt must have the SHA-256 fcea919f" in refused(Characters, "ptb")
    put(here / "data" / "mnist", dict.fromkeys(data.SETS["mnist"].names, b"\x00"))
    assert "train-images-idx3-ubyte must have the SHA-256 ba891046" in refused(Pixels, "mnist")


def test_every_checksum_is_one():
    for known in data.SETS.values():
        assert known.names
        assert all(re.fullmatch("[0-9a-f]{64}", found) for found in known.sums.values())
        assert known.mirrors or known.archives
        assert all("{name}" in mirror for mirror in known.mirrors)
    assert len(data.SETS["fsdd"].names) == 3000


def test_what_is_embedded_is_what_it_was():
    sums = {name: data.sha256(data.embedded(file))[:16] for name, (_, _, file) in data.EMBEDDED.items()}
    assert sums == {"digits": "6ebb3d2fee246a4e", "glyphs": "b8d8cf8beca78633", "shakespeare": "93ebb53e32d23037"}
    folder = Path(data.__file__).parent / "embedded"
    assert sum(path.stat().st_size for path in folder.iterdir()) < 1_000_000


there = pytest.mark.skipif(
    not os.environ.get("KREISS_DATA"), reason="needs the data sets in the folder that KREISS_DATA names"
)


@there
@pytest.mark.parametrize("name", data.SETS)
def test_the_real_sets_have_their_checksums(name):
    if data.located(name) is None:
        pytest.skip(f"needs the data set {name} in the folder that KREISS_DATA names")
    assert data.verify(name).name == name


# ---------------------------------------------------------------- archives


def tarred(path: Path, members: dict[str, bytes], links: dict[str, str] | None = None) -> Path:
    with tarfile.open(path, "w:gz") as packed:
        for name, target in (links or {}).items():
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, target
            packed.addfile(link)
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            packed.addfile(member, io.BytesIO(content))
    return path


def zipped(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as packed:
        for name, content in members.items():
            packed.writestr(name, content)
    return path


@pytest.mark.parametrize("pack", [tarred, zipped])
def test_wanted_members_are_unpacked_and_no_others(tmp_path, pack):
    made = pack(tmp_path / "a", {"top/x/one": b"1", "top/two": b"2", "top/three": b"3"})
    unpack(made, tmp_path / "out", {"x/one", "two"}, strip=1)
    assert left_in(tmp_path / "out") == ["two", "x/one"]
    assert (tmp_path / "out" / "x" / "one").read_bytes() == b"1"


@pytest.mark.parametrize("pack", [tarred, zipped])
@pytest.mark.parametrize("name", ["../evil", "/evil", "top/../../evil", "top/..", "C:/evil", "..\\evil"])
def test_no_member_of_an_archive_leaves_its_folder(tmp_path, pack, name):
    made = pack(tmp_path / "a", {"top/good": b"1", name: b"2"})
    wanted = {"top/good", name, "evil"}
    said = refused(unpack, made, tmp_path / "in" / "out", wanted)
    assert said.startswith("members of an archive must stay in their folder; got ")
    assert left_in(tmp_path) == ["a"]


def test_links_of_an_archive_are_not_followed(tmp_path):
    (tmp_path / "outside").mkdir()
    made = tarred(tmp_path / "a", {"link/evil": b"2"}, links={"link": str(tmp_path / "outside")})
    unpack(made, tmp_path / "out", {"link/evil", "link"})
    assert not left_in(tmp_path / "outside")
    assert left_in(tmp_path / "out") == ["link/evil"]


def test_a_link_in_a_zip_is_not_unpacked(tmp_path):
    member = zipfile.ZipInfo("link")
    member.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "a", "w") as packed:
        packed.writestr(member, "/etc/passwd")
    unpack(tmp_path / "a", tmp_path / "out", {"link"})
    assert left_in(tmp_path / "out") == []


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x05\x06 torn"])
def test_what_is_no_archive_is_named(tmp_path, content):
    (tmp_path / "a").write_bytes(content)
    assert "must be a whole zip or tar archive; got" in refused(unpack, tmp_path / "a", tmp_path / "out", {"x"})


@pytest.fixture
def packed(here: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """A known set that comes as an archive from either of two addresses."""
    addresses = (f"{server.url}/one.tar.gz", f"{server.url}/two.tar.gz")
    monkeypatch.setitem(data.SETS, "packed", DataSet("an archive", "none", SUMS, archives=addresses))
    made = tarred(here / "made", {f"top/{name}": content for name, content in CONTENT.items()})
    server.files["/one.tar.gz"] = server.files["/two.tar.gz"] = made.read_bytes()
    made.unlink()
    return server


def test_an_archive_is_fetched_unpacked_and_checked(here, packed):
    assert data.folder("packed") == here / "cache" / "packed"
    assert left_in(here / "cache") == ["packed/one.txt", "packed/two.txt"]
    assert data.verify("packed")


def test_an_archive_with_a_wrong_file_is_not_unpacked_in_place(here, packed):
    packed.files["/one.tar.gz"] = tarred(
        here / "made", {**{f"top/{n}": c for n, c in CONTENT.items()}, "top/two.txt": b"other"}
    ).read_bytes()
    packed.files["/two.tar.gz"] = tarred(here / "made", {"top/one.txt": CONTENT["one.txt"]}).read_bytes()
    said = refused(data.fetch, "packed")
    assert f"two.txt in it must have the SHA-256 {SUMS['two.txt']} and has {OTHER}" in said
    assert f"two.txt in it must have the SHA-256 {SUMS['two.txt']} and has no such file" in said
    assert left_in(here / "cache") == []


def test_a_corrupt_set_in_the_cache_is_replaced_as_a_whole(here, packed):
    put(here / "cache" / "packed", {"one.txt": b"other", "old": b""})
    data.fetch("packed")
    assert left_in(here / "cache") == ["packed/one.txt", "packed/two.txt"]


def test_a_fetched_archive_that_climbs_out_is_refused_by_its_address(here, packed):
    packed.files["/one.tar.gz"] = tarred(here / "made", {"../../evil": b""}).read_bytes()
    assert f"got '../../evil' in {packed.url}/one.tar.gz" in refused(data.fetch, "packed")
    assert not list(here.rglob("evil"))


# ---------------------------------------------------------------- the command line


@pytest.fixture
def cli(does, monkeypatch) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`kreiss data` in this process: another one would spend its time on importing torch."""

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        for name, value in {"COLUMNS": "200", **environment}.items():
            monkeypatch.setenv(name, value)
        return subprocess.CompletedProcess(arguments, *does("data", *arguments))

    return run


def test_data_list_says_what_is_known_and_where_it_is(here, cli):
    put(here / "data" / "ptb", dict.fromkeys(data.SETS["ptb"].names, b""))
    done = cli("list")
    assert done.returncode == 0
    assert all(name in done.stdout for name in (*data.SETS, *data.EMBEDDED))
    assert str(here / "data" / "ptb") in done.stdout
    assert "kreiss data fetch mnist" in done.stdout


def test_data_path_prints_the_folder_or_says_how_to_get_the_set(here, cli):
    put(here / "data" / "ptb", dict.fromkeys(data.SETS["ptb"].names, b""))
    assert cli("path", "ptb").stdout == f"{here / 'data' / 'ptb'}\n"
    done = cli("path", "mnist")
    assert done.returncode == 2
    assert done.stderr.endswith("Run: kreiss data fetch mnist.\n")
    assert done.stderr.count("\n") == 1


def test_data_verify_ends_with_1_if_a_file_differs(here, cli):
    put(here / "data" / "ptb", dict.fromkeys(data.SETS["ptb"].names, b"other"))
    done = cli("verify")
    assert done.returncode == 1
    assert OTHER in done.stdout
    assert "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    assert cli("verify", "mnist").returncode == 2


@there
def test_data_verify_is_content_with_the_real_ptb(cli):
    if data.located("ptb") is None:
        pytest.skip("needs the data set ptb in the folder that KREISS_DATA names")
    done = cli("verify", "ptb")
    assert done.returncode == 0
    assert "ptb: 3 files intact in" in done.stdout


def test_data_fetch_without_a_network_is_one_line(here, cli):
    nowhere = dict.fromkeys(("HTTPS_PROXY", "https_proxy", "ALL_PROXY"), "http://127.0.0.1:9")
    done = cli("fetch", "ptb", **nowhere)
    assert done.returncode == 2
    assert done.stderr.startswith(
        "error: ptb.train.txt must come from one of 1 addresses; got raw.githubusercontent.com: no connection."
    )
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stdout + done.stderr


def test_data_fetch_of_what_is_there_says_where(here, monkeypatch):
    put(here / "cache" / "ptb", dict.fromkeys(data.SETS["ptb"].names, b""))
    for name in data.SETS["ptb"].names:
        monkeypatch.setitem(data.SETS["ptb"].sums, name, hashlib.sha256(b"").hexdigest())
    assert data.fetch("ptb") == here / "cache" / "ptb"


def test_a_missing_extra_ends_with_3_and_the_command_that_installs_it(monkeypatch, capsys):
    def fail(words: list[str]) -> int:
        raise MissingExtra("reading parquet", "parquet", "pyarrow")

    monkeypatch.setattr("kreiss.cli.app", fail)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 3
    expected = (
        "error: reading parquet needs the package pyarrow; it is not installed. Run: pip install 'kreiss[parquet]'.\n"
    )
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize("arguments", [[], ["--help"], ["fetch", "--help"]], ids=repr)
def test_help_of_data_is_shown_without_importing_torch(arguments):
    program = f"""
import sys
sys.argv = ["kreiss", "data", *{arguments}]
from kreiss.cli import main
try:
    main()
except SystemExit as done:
    assert not done.code, done.code
sys.exit("torch was imported" if "torch" in sys.modules else 0)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "fetch" in done.stdout
