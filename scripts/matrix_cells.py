# SPDX-License-Identifier: MIT
"""The cells of scripts/matrix: which there are, what the documentation refuses, which faults each is given."""
import collections
import itertools
import zlib

METHODS = ("dense", "column_parallel", "row_parallel", "masked_split", "blockshock")
FIXED = ("complement_1100_0011", "complement_1010_0101", "complement_1001_0110", "interleave", "contiguous", "uneven", "importance")
BY_ROW = ("random_2of4", "magnitude", "transposable")
SPARSE = ("sparse24 complement_1100_0011",)  # a fixed mask by the 2:4 op
# int8 and wire_bf16: f32 whose sums travel as int8, as bf16; i8: integers, which no layer of a run has. f64 and f8e4m3 are of `ref`.
DTYPES = ("f32", "bf16", "f16", "int8", "i8", "wire_bf16", "f64", "f8e4m3")
WIRES = {"int8": "int8", "wire_bf16": "bf16"}
OF_REF = ("f64", "f8e4m3")
RARE = ("wire_bf16",) + OF_REF  # on 2 and 3 ranks; what they add does not depend on who starts these: off threads phases 0 and 3
LAUNCHES = ("threads", "processes", "mpirun", "mpi")
SHAPES = ((9, 23, 29), (11, 17, 36), (8, 19, 67), (12, 31, 21))  # B, N, K: odd ones, 128 outputs or more
PHASES = (0, 1, 2, 3)
# Gates that must have judged. T5 is for exact sums: not where they travel as int8; AdamW has none.
MUST = {0: ("T1", "T2.feature", "T2.token", "T3", "T4", "T5", "T6"),
        2: ("dX.T3", "dX.T4", "dW.T3", "db.T3", "T6"),
        3: ("W.T3", "b.T3", "T4", "y.T1", "y.T3", "W.T5", "T6")}
# Ops and collectives of which each element shows in what the phase judges; a flip or a NaN in the others may be judged as
# data (dY is taken as forward made it: docs/gates.md).
SHOWS = {0: ("matmul", "matmul24", "gather_columns", "all_reduce", "all_gather", "reduce_scatter"),
         2: ("matmul_dx", "matmul_dw", "matmul24_dx", "matmul24_dw", "scatter_columns"),
         3: ("matmul", "matmul24", "gather_columns", "all_reduce")}
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
PRODUCTS = ("matmul", "matmul24", "matmul_dx", "matmul24_dx", "matmul_dw", "matmul24_dw")

Cell = collections.namedtuple("Cell", "launch method mask dtype P phase")
# Which of these meet: all, or those that who starts the ranks may change something for.
ALL_AXES, LAUNCHED = (1, 2, 3, 4, 5), (1, 4, 5)


def backend_of(cell):
    return "ref" if cell.dtype in OF_REF else "cpu"


def shape_of(cell):
    return SHAPES[sum(map(ord, cell.method + cell.mask + cell.dtype)) % len(SHAPES)]


def activation_of(cell):
    """Of gradients and steps: by turns, so that each method meets each. Faults are given to layers without one, where
    every element shows."""
    return ("none", "relu", "gelu", "silu")[zlib.crc32(repr(cell[1:]).encode()) % 4] if cell.phase > 1 else "none"


def by_halves(mask):
    """The masks of two halves: an even number of ranks, or one."""
    return mask.startswith(("complement", "sparse24")) or mask in BY_ROW


def refusal(cell):
    """The id of the refusal that the documentation states for a cell, or None."""
    method, mask, P = cell.method, cell.mask, cell.P
    if cell.dtype == "i8":
        return "BS-CFG-DTYPE"
    if method == "dense" and P > 1:
        return "BS-METHOD-WORLD"
    if method in ("masked_split", "blockshock") and by_halves(mask) and P % 2 == 1 and P > 1:
        return "BS-MASK-WORLD"
    return None


def masks_of(method):
    """What is asked of a method: no mask, and every one; those that have no use for any are asked once."""
    if method in ("dense", "column_parallel", "row_parallel"):
        return ("none", FIXED[0]) + (("contiguous", "uneven") if method == "row_parallel" else ())
    return FIXED + BY_ROW + (SPARSE if method == "blockshock" else ())


def mask_used(cell):
    """The mask that the record must have: none where the method has no use for it."""
    name = cell.mask.rpartition(" ")[2]
    if cell.method in ("masked_split", "blockshock") or name in ("contiguous", "uneven"):
        return name
    return None


def all_cells(launches):
    for launch in launches:
        for method in METHODS:
            for mask, dtype, P, phase in itertools.product(masks_of(method), DTYPES, (1, 2, 3, 4), PHASES):
                if P == 1 and launch != "threads":
                    continue  # one rank is one process either way
                if dtype == "i8" and (phase, P) != (0, 2):
                    continue
                if dtype in RARE and (P not in (2, 3) or launch != "threads" and phase == 2) and method != "dense":
                    continue
                if phase == 1 and (dtype not in ("f32", "bf16") or P == 3):
                    continue  # phase 1 times what phase 0 judged
                yield Cell(launch, method, mask, dtype, P, phase)


def few(cells, every, axes=ALL_AXES):
    """Cells that together have each value of each pair of axes at least once a launch: a greedy cover."""
    def pairs(c):
        v = [(i, c[i]) for i in axes]
        return {(c.launch,) + p for p in itertools.combinations(v, every)}
    wanted = collections.OrderedDict((c, pairs(c)) for c in cells if refusal(c) is None)
    open_pairs = set().union(*wanted.values()) if wanted else set()
    chosen = []
    while open_pairs:
        best = max(wanted, key=lambda c: (len(wanted[c] & open_pairs), zlib.crc32(repr(c[1:]).encode())))  # ties: anything, but the same
        open_pairs -= wanted.pop(best)
        chosen.append(best)
    # And one refusal of each kind; of few axes each reason once.
    seen = set()
    for c in cells:
        why = refusal(c)
        key = (c.launch, why, c.method if axes == ALL_AXES else "")
        if why and key not in seen:
            seen.add(key)
            chosen.append(c)
    return chosen


def choose(cells, faulty, launches, size):
    """The cells to run, and those to inject into; size "quick": on threads each two values meet, elsewhere each value once; "least": on threads
    each value once, elsewhere each of LAUNCHED; "": all. bsrun --launch mpi is mpirun with another hand on it: few of it are enough."""
    keep, inject = [], []
    for launch in launches:
        mine, wrong = [c for c in cells if c.launch == launch], [c for c in faulty if c.launch == launch]
        slow = launch.startswith("mpi")  # a second and more for each job that fails
        if size == "least" and launch != "threads":
            mine, wrong = few([c for c in mine if c.dtype not in RARE], 1, LAUNCHED), few(wrong, 1)[: 1 if slow else 2]
        elif size:
            rare = few([c for c in mine if c.dtype in RARE and refusal(c) is None], 1)
            mine = few([c for c in mine if c.dtype not in RARE], 2 if launch == "threads" and size == "quick" else 1)
            mine += rare[: 6 if launch == "threads" else 2 if slow else 3]
            wrong = few(wrong, 1)[: 1 if slow else 2 if size == "least" else 3 if launch != "threads" else 5]
        elif launch == "mpi":
            mine, wrong = few(mine, 2), few(wrong, 1)[:4]
        keep += mine
        inject += wrong
    return keep, inject


def shows(cell):
    """Ops and collectives of a phase whose every result is judged."""
    if cell.phase != 2:
        return SHOWS[cell.phase]
    summed = cell.method in ("column_parallel", "masked_split") or cell.mask in BY_ROW + SPARSE
    return SHOWS[2] + (("all_reduce",) if summed else ("all_gather",))


def faults_of(cell, called, waits):
    """(plan, exit code, deadline) of each fault that a cell is given; `called`: ops that a run of it calls; waits: 1,
    also those that last as long as the deadline in collectives; 2: and in products."""
    last = cell.P - 1
    for op in sorted(called):
        plan = "rank=%d,op=%s" % (last, op)
        for what in ("flip", "nan"):
            if (op, what) == ("scatter_columns", "flip"):
                continue  # a call for each rank's block of one result: what one flips the next flips back
            if op in shows(cell) and not (cell.dtype in WIRES and op in COLLECTIVES):
                yield plan + ",do=" + what, 6, 20
        if op in PRODUCTS:
            yield plan + ",seq=0,do=err", 7, 20
            if waits > 1 and cell.P > 1:
                yield from gone(cell, plan, waits)
        if op in COLLECTIVES:
            yield plan + ",seq=0,do=truncate", 9, 20
            yield plan + ",seq=0,do=err", 7, 20
            yield from gone(cell, plan, waits)


def gone(cell, plan, waits):
    """A rank that hangs, that is killed, that is stopped at the first call of an op: of threads none can be killed alone."""
    if waits:
        yield plan + ",seq=0,do=hang", 8, 0.5
    if cell.launch != "threads":
        yield plan + ",seq=0,do=kill", 7, 20
    if cell.launch != "threads" and waits:
        yield plan + ",seq=0,do=stop", 8, 0.5


def turns(method, mask, phase):
    """The dtype and the number of ranks of the cell of a method, mask and phase that is given faults. They go round: over the three
    phases a mask of a method meets each dtype once, from method to method, mask to mask and phase to phase the ranks change, and
    masks of two halves have an even number of them."""
    at = (masks_of(method).index(mask) + METHODS.index(method), (0, 2, 3).index(phase))
    dtype = ("f32", "bf16", "f16")[(at[0] + at[1]) % 3]
    ranks = (1,) if method == "dense" else (2, 4) if method in ("masked_split", "blockshock") and by_halves(mask) else (2, 3, 4)
    return dtype, ranks[(at[0] // 3 + at[1]) % len(ranks)]


# And one of each other dtype.
ONCE = {"int8": ("row_parallel", "none", 0, 2), "wire_bf16": ("row_parallel", "contiguous", 0, 3),
        "f64": ("blockshock", "random_2of4", 0, 2), "f8e4m3": ("column_parallel", "none", 3, 2)}


def fault_cells(cells):
    """The cells that faults are injected into: of each launch, method, mask and phase the one whose turn it is."""
    for c in cells:
        if refusal(c) or c.phase == 1:
            continue
        if (c.dtype, c.P) == turns(c.method, c.mask, c.phase) or ONCE.get(c.dtype) == (c.method, c.mask, c.phase, c.P):
            yield c
