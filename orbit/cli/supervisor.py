"""Keeps a set of processes running: merged logs, restarts with growing pauses, an ordered end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import trio

from orbit.cli.output import MergedLog
from orbit.cli.procfile import ProcessSpec
from orbit.cli.records import Records

FIRST_PAUSE_SECONDS: Final = 0.5
MAX_PAUSE_SECONDS: Final = 15.0
# A process that ran this long had started well: the next failure is a first one.
SETTLED_SECONDS: Final = 30.0
STOP_SECONDS: Final = 30.0
LINE_MAX_BYTES: Final = 64 * 1024
_TETHER: Final = str(Path(__file__).with_name("tether.py"))


class Supervisor:
    """Runs processes until `stop`; every child ends with this process, however that ends."""

    def __init__(
        self,
        specs: Sequence[ProcessSpec],
        environment: Mapping[str, str],
        log: MergedLog,
        records: Records,
    ) -> None:
        self._specs = specs
        self._environment = dict(environment)
        self._log = log
        self._records = records
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._stopping = trio.Event()

    async def run(self) -> None:
        """Keep all processes running; return once `stop` was called and all have ended."""
        try:
            async with trio.open_nursery() as nursery:
                for spec in self._specs:
                    nursery.start_soon(self._keep, spec)
        finally:
            self._kill()
            self._records.write({})

    def stop(self) -> None:
        """Ask every process to end; `run` returns when all have. Those that take longer than 30 s are killed."""
        self._stopping.set()
        self._signal(signal.SIGTERM)

    def _kill(self) -> None:
        self._signal(signal.SIGKILL)
        for process in self._running.values():
            process.wait()
        self._running.clear()

    def _signal(self, number: signal.Signals) -> None:
        for process in self._running.values():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)

    async def _keep(self, spec: ProcessSpec) -> None:
        failures = 0
        while not self._stopping.is_set():
            began = trio.current_time()
            code = await self._run_once(spec)
            if self._stopping.is_set():
                return
            failures = 1 if trio.current_time() - began > SETTLED_SECONDS else failures + 1
            pause = min(MAX_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** (failures - 1))
            self._log.say(f"{spec.name} ended with {_ending(code)}; it is started again in {pause:g} s")
            with trio.move_on_after(pause):
                await self._stopping.wait()

    async def _run_once(self, spec: ProcessSpec) -> int:
        process = self._start(spec)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._pump, spec.name, process)
                code = await self._wait(process)
                # Its last lines are in the pipe; a grandchild that holds the pipe open is not waited for.
                nursery.cancel_scope.deadline = trio.current_time() + 0.5
        finally:
            if process.poll() is not None and self._running.get(spec.name) is process:
                del self._running[spec.name]
                self._note()
        return code

    def _start(self, spec: ProcessSpec) -> subprocess.Popen[bytes]:
        # Started from the main thread, whose end is what the tether waits for; in a session of its own, so that
        # Ctrl-C reaches this process alone, which ends the others in order.
        process = subprocess.Popen(
            tethered(spec.command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self._environment,
            start_new_session=True,
        )
        self._running[spec.name] = process
        self._note()
        return process

    def _note(self) -> None:
        self._records.write({name: process.pid for name, process in self._running.items()})

    async def _wait(self, process: subprocess.Popen[bytes]) -> int:
        """Wait for the end; a process that is asked to stop and doesn't is killed."""
        with trio.CancelScope() as patience:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._limit, patience)
                code = await trio.to_thread.run_sync(process.wait, abandon_on_cancel=True)
                nursery.cancel_scope.cancel()
                return code
        self._log.say(f"process {process.pid} didn't stop within {STOP_SECONDS:g} s and is killed")
        process.kill()
        return process.wait()

    async def _limit(self, patience: trio.CancelScope) -> None:
        await self._stopping.wait()
        patience.deadline = trio.current_time() + STOP_SECONDS

    async def _pump(self, name: str, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        async with trio.lowlevel.FdStream(os.dup(process.stdout.fileno())) as stream:
            process.stdout.close()
            rest = b""
            async for chunk in stream:
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    self._log.write(name, line.decode(errors="replace"))
                if len(rest) > LINE_MAX_BYTES:
                    self._log.write(name, rest.decode(errors="replace"))
                    rest = b""
            if rest:
                self._log.write(name, rest.decode(errors="replace"))


def tethered(command: Sequence[str]) -> list[str]:
    """Return the command as one that gets SIGTERM when this process ends; start it from the main thread."""
    return [sys.executable, "-S", "-E", _TETHER, str(os.getpid()), *command]


def _ending(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
