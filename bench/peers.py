# SPDX-License-Identifier: MIT
"""Libraries that bench/run compares with: OpenBLAS, BLIS and PyTorch for products, Open MPI and gloo for
all_reduce. What the system has is used; the rest is put into a folder outside the tree, by pip and by
`apt-get download` without installing. A peer that cannot be had says why."""
import glob
import json
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

    def seconds(self, said):
        return [float(line) for line in said.split()]

    def run(self, pairs):
        seconds = []
        for command in self.commands(pairs):
            done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=self.environment,
                                  check=False)
            if done.returncode != 0:
                raise Absent(f"{self.name} failed ({done.returncode}): {done.stderr.strip()[-200:]}")
            seconds += self.seconds(done.stdout)
        if len(seconds) != len(pairs):
            raise Absent(f"{self.name} gave {len(seconds)} times for {len(pairs)} sizes")
        return seconds


class Ours(Peer):
    """bsrun coll bench, a process for each pair; it finds the iterations itself."""

    def commands(self, pairs):
        return [self.command + ["--size", str(size)] for size, _ in pairs]

    def seconds(self, said):
        return [json.loads(line)["time_us"] * 1e-6 for line in said.splitlines()]


class OpenMpi(Peer):
    """mpi_allreduce, a process for each pair; the second time of a round is MPI_Allreduce's."""

    def commands(self, pairs):
        return [self.command + [str(size), str(iters), "1"] for size, iters in pairs]

    def seconds(self, said):
        return [float(said.split()[1])]


def once(find):
    """A peer is looked for once; it is had or absent for the whole run."""
    name = find.__name__

    def found(self):
        if os.environ.get("BS_PEERS") == "none":
            raise Absent("BS_PEERS=none")
        if name not in self.known:
            try:
                self.known[name] = find(self)
            except (Absent, OSError, subprocess.TimeoutExpired) as why:
                self.known[name] = Absent(str(why))
        if isinstance(self.known[name], Absent):
            raise self.known[name]
        return self.known[name]
    return found


class Peers:
    """All peers of a run. `folder` keeps what was fetched; without BS_PEERS_DIR it goes with the run."""

    def __init__(self, build):
        self.build = build
        self.known, self.scratch = {}, tempfile.mkdtemp(prefix="bs-peers-")
        self.folder = os.environ.get("BS_PEERS_DIR") or os.path.join(self.scratch, "peers")
        self.library_paths = []  # for LD_LIBRARY_PATH: of libraries that are not the system's
        self.blis_arch = None

    def close(self):
        shutil.rmtree(self.scratch, ignore_errors=True)

    @once
    def open_mpi(self):
        program, mpirun = os.path.join(self.build, "bench", "mpi_allreduce"), shutil.which("mpirun")
        if not os.path.exists(program) or not mpirun:
            raise Absent("built without an MPI, or no mpirun (Debian: openmpi-bin, libopenmpi-dev)")
        start = [mpirun, "-n", "2", "--allow-run-as-root", "--oversubscribe", "--bind-to", "core",
                 "--mca", "btl", "self,vader", program]
        environment = dict(os.environ, BS_BENCH_PLUGINS=os.path.join(self.build, "lib", "blockshock", "plugins-0"))
        return OpenMpi("Open MPI", checked([mpirun, "--version"], timeout=60).splitlines()[0], start, environment)

    @once
    def python(self):
        """The path of a Python that has torch."""
        python = os.path.join(self.folder, "bin", "python")
        # scripts/peers makes this environment too, without torch.
        if not os.path.exists(python) or subprocess.run([python, "-c", "import torch"], capture_output=True, check=False).returncode != 0:
            install_torch(self.folder)
        checked([python, "-c", "import torch"], timeout=300)
        return python

    @once
    def gloo(self):
        command = [self.python(), os.path.join(HERE, "peer_gloo.py")]
        environment = dict(os.environ, OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1")
        return Peer("gloo", checked(command + ["--version"], timeout=300, env=environment).strip(), command,
                    environment)

    @once
    def openblas(self):
        """What to give to dlopen."""
        return self.library("libopenblas.so.0", ("libopenblas0-pthread", "libgfortran5", "libquadmath0"))

    @once
    def blis(self):
        """The OpenMP build: the pthread one starts its threads anew for each call."""
        file = self.library("libblis.so.4", ("libblis4-openmp", "libgomp1"))
        self.blis_arch = arch_of_blis(file, self.environment("all", 1))
        return file

    def environment(self, isa, threads):
        """What libraries read when they are opened. Idle threads of theirs spin for less than the lead of a sample, and OpenMP's are bound
        to the cores that the plugin's are bound to. isa avx2 holds all of them to AVX2. What is set already stays."""
        cores = sorted(os.sched_getaffinity(0))[:threads]
        told = {"GOMP_SPINCOUNT": "10000",  # a fraction of a millisecond; OpenMP's own is several
                "OPENBLAS_THREAD_TIMEOUT": "20",  # 2^20 cycles; its own is 2^26
                "THP_MEM_ALLOC_ENABLE": "1",  # PyTorch asks for huge pages, as all the others do
                "GOMP_CPU_AFFINITY": " ".join(str(core) for core in cores)}
        if isa == "avx2":
            told.update(ONEDNN_MAX_CPU_ISA="AVX2", OPENBLAS_CORETYPE="Haswell", ATEN_CPU_CAPABILITY="avx2", MKL_ENABLE_INSTRUCTIONS="AVX2")
            if self.blis_arch:
                told["BLIS_ARCH_TYPE"] = self.blis_arch
        if self.library_paths:
            told["LD_LIBRARY_PATH"] = ":".join(self.library_paths)
        return {**told, **os.environ}

    def library(self, soname, packages):
        if opens(soname):
            return soname
        folder = os.path.join(self.folder, "deb")
        where = os.path.join(folder, "usr", "lib")
        if not glob.glob(os.path.join(where, "**", soname), recursive=True):
            unpack_packages(folder, packages)
        files = glob.glob(os.path.join(where, "**", soname), recursive=True)
        if not files:
            raise Absent(f"{' '.join(packages)} hold no {soname}")
        around = [path for path in glob.glob(os.path.join(where, "*")) if os.path.isdir(path)]
        environment = dict(os.environ, LD_LIBRARY_PATH=":".join(around))
        if not opens(files[0], environment):
            raise Absent(f"{soname} of {packages[0]} does not load")
        if not opens(files[0]):
            self.library_paths += [path for path in around if path not in self.library_paths]
        return files[0]


def checked(command, **more):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **more)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()
        raise Absent(f"{os.path.basename(command[0])} failed ({done.returncode}): {said[-200:]}")
    return done.stdout


def install_torch(folder):
    """A Python environment with torch; pip's own settings say from where."""
    print(f"bench: installing torch into {folder} (BS_PEERS_DIR keeps it, BS_PEERS=none goes without)",
          file=sys.stderr)
    checked([sys.executable, "-m", "venv", folder])
    checked([os.path.join(folder, "bin", "python"), "-m", "pip", "install", "--quiet",
             "--disable-pip-version-check", "torch", "numpy"])


def unpack_packages(folder, packages):
    """Debian packages unpacked into a folder; nothing is installed."""
    for tool in ("apt-get", "dpkg"):
        if not shutil.which(tool):
            raise Absent(f"the system has none, and no {tool} to fetch {packages[0]}")
    print(f"bench: unpacking {', '.join(packages)} into {folder}", file=sys.stderr)
    os.makedirs(folder, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        checked(["apt-get", "download", *packages], cwd=place, timeout=300)
        for name in sorted(os.listdir(place)):
            checked(["dpkg", "-x", os.path.join(place, name), folder])


def arch_of_blis(library, environment):
    """The number by which BLIS knows its AVX2 kernels for this processor; a release has numbers of its own."""
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        wanted = "zen3" if "AuthenticAMD" in file.read() else "haswell"
    code = ("import ctypes, sys\nname, names = ctypes.CDLL(sys.argv[1]).bli_arch_string, []\nname.restype = ctypes.c_char_p\n"
            "while 'generic' not in names: names.append(name(len(names)).decode())\nprint(names.index(sys.argv[2]))")
    done = subprocess.run([sys.executable, "-c", code, library, wanted], capture_output=True, text=True, env=environment, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def opens(library, environment=None):
    """In another process: a library that is opened here would stay."""
    code = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"
    return subprocess.run([sys.executable, "-c", code, library], capture_output=True, env=environment,
                          check=False).returncode == 0
