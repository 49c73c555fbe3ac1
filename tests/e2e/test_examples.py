"""Every example does what its expected.txt says, and the README's first steps do what the README says."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.orbit_up import ROOT, Up, clean_environment, orbit_up, prepare_home

EXAMPLES = sorted(file.parent for file in (ROOT / "examples").glob("*/expected.txt"))
QUICKSTART = ROOT / "examples" / "quickstart"
EXAMPLE_SECONDS = 60.0


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One Orbit for all examples, in a home named as a newcomer's is."""
    home = tmp_path_factory.mktemp("checkout") / ".orbit"
    prepare_home(home)
    with orbit_up(home) as running:
        yield running


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda folder: folder.name)
def test_an_example_prints_what_it_says(up: Up, example: Path) -> None:
    """Line by line, ids apart, twice: what the first run left behind doesn't matter to the second."""
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, str(example / "main.py")],
            env=clean_environment(**up.environment),
            capture_output=True,
            text=True,
            timeout=EXAMPLE_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert re.sub(r"\b[0-9a-f]{32}\b", "<id>", done.stdout) == (example / "expected.txt").read_text(
            encoding="utf-8"
        )


@pytest.mark.skipif(shutil.which("curl") is None, reason="the README's submit needs curl")
def test_the_readmes_first_steps(up: Up) -> None:
    """A submit by curl, its repeat, a worker that greets and ends at Ctrl-C, and the task's end in the list."""
    environment = clean_environment(ORBIT_URL=up.ready["url"])
    submit = ["sh", str(QUICKSTART / "submit.sh")]
    answers = [
        json.loads(
            subprocess.run(
                submit, env=environment, cwd=up.home.parent, capture_output=True, check=True
            ).stdout
        )
        for _ in range(2)
    ]
    assert [answer["data"]["deduplicated"] for answer in answers] == [False, True]
    assert [answer["data"]["task"]["state"] for answer in answers] == ["WAITING", "WAITING"]

    worker = subprocess.Popen(
        [sys.executable, str(QUICKSTART / "worker.py")],
        env=clean_environment(**up.environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "Hello, World!\n"
        worker.send_signal(signal.SIGINT)
        assert worker.communicate(timeout=EXAMPLE_SECONDS) == ("", "")
        assert worker.returncode == 0
    finally:
        worker.kill()
        worker.wait()

    listed = subprocess.run(
        [sys.executable, str(ROOT / "bin" / "orbit"), "tasks", "list", "--queue", "default", "--json"],
        env={**environment, "ORBIT_HOME": os.fspath(up.home)},
        capture_output=True,
        check=True,
    )
    tasks = json.loads(listed.stdout)["tasks"]
    assert [task["state"] for task in tasks if task["handler"] == "greet"] == ["SUCCEEDED"]
