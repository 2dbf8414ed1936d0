# SPDX-License-Identifier: MIT
"""Libraries that bench/run compares all_reduce with: Open MPI, compiled against here, and gloo in a Python
environment outside the tree. A peer that cannot be had says why; nothing is installed system-wide."""
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))


class Absent(Exception):
    """Why a peer cannot be had."""


class Peer:
    """A way to time all_reduce: seconds a call for each pair (bytes, iterations)."""

    def __init__(self, name, version, command, environment=None):
        self.name, self.version, self.command = name, version, command
        self.environment = environment

    def commands(self, pairs):
        return [self.command + [str(n) for pair in pairs for n in pair]]

    def run(self, pairs):
        seconds = []
        for command in self.commands(pairs):
            done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=self.environment,
                                  check=False)
            if done.returncode != 0:
                raise Absent(f"{self.name} failed ({done.returncode}): {done.stderr.strip()[-200:]}")
            seconds += [float(line) for line in done.stdout.split()]
        if len(seconds) != len(pairs):
            raise Absent(f"{self.name} gave {len(seconds)} times for {len(pairs)} sizes")
        return seconds


class Ours(Peer):
    """bench_allreduce takes one pair a process."""

    def commands(self, pairs):
        return [self.command + [str(n) for n in pair] for pair in pairs]


def open_mpi(folder):
    mpicc, mpirun = shutil.which("mpicc"), shutil.which("mpirun")
    if not mpicc or not mpirun:
        raise Absent("no mpicc and mpirun (Debian: openmpi-bin, libopenmpi-dev)")
    program = os.path.join(folder, "peer_mpi")
    built = subprocess.run([mpicc, "-O2", "-o", program, os.path.join(HERE, "peer_mpi.c")],
                           capture_output=True, text=True, check=False)
    if built.returncode != 0:
        raise Absent(f"mpicc failed: {built.stderr.strip()[-200:]}")
    start = [mpirun, "-n", "2", "--allow-run-as-root", "--oversubscribe", "--bind-to", "core",
             "--mca", "btl", "self,vader", program]
    said = subprocess.run(start + ["--version"], capture_output=True, text=True, timeout=60, check=False)
    if said.returncode != 0:
        raise Absent(f"mpirun failed: {said.stderr.strip()[-200:]}")
    return Peer("Open MPI", said.stdout.strip(), start)


def install_torch(folder):
    """A Python environment with torch; pip's own settings say from where."""
    print(f"bench: installing torch into {folder} (BS_PEERS_DIR keeps it, BS_PEERS=none goes without)",
          file=sys.stderr)
    for step in ([sys.executable, "-m", "venv", folder],
                 [os.path.join(folder, "bin", "python"), "-m", "pip", "install", "--quiet",
                  "--disable-pip-version-check", "torch", "numpy"]):
        done = subprocess.run(step, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Absent(f"no torch: {(done.stderr or done.stdout).strip()[-200:]}")


def gloo(folder):
    python = os.path.join(folder, "bin", "python")
    if not os.path.exists(python):
        install_torch(folder)
    command = [python, os.path.join(HERE, "peer_gloo.py")]
    environment = dict(os.environ, OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1")
    said = subprocess.run(command + ["--version"], capture_output=True, text=True, timeout=300,
                          env=environment, check=False)
    if said.returncode != 0:
        raise Absent(f"torch does not start: {said.stderr.strip()[-200:]}")
    return Peer("gloo", said.stdout.strip(), command, environment)


def find_all():
    """(peers, {name: why absent}, folder to remove or None)"""
    peers, absent = [], {}
    if os.environ.get("BS_PEERS") == "none":
        return peers, {"Open MPI": "BS_PEERS=none", "gloo": "BS_PEERS=none"}, None
    scratch = tempfile.mkdtemp(prefix="bs-peers-")
    folder = os.environ.get("BS_PEERS_DIR") or os.path.join(scratch, "python")
    for name, find, where in (("Open MPI", open_mpi, scratch), ("gloo", gloo, folder)):
        try:
            peers.append(find(where))
        except (Absent, OSError, subprocess.TimeoutExpired) as why:
            absent[name] = str(why)
    return peers, absent, scratch
