# SPDX-License-Identifier: MIT
"""What docs/answer.md says of the rows of scripts/answer, and its chart docs/answer.svg: text from rows, the same each time."""
import html
import math

FIRST = "blockshock complement_1100_0011"
PEERS = (("row_parallel", "row_parallel"), ("column_parallel", "column_parallel"), ("dense on one core", "dense on one core"),
         ("dense on all cores", "dense on all cores"), ("blockshock random_2of4", "blockshock with random_2of4"))


def cases(rows):
    """Of each (ranks, case), in the order of the rows: {candidate: row}."""
    by = {}
    for r in rows:
        by.setdefault((r["ranks"], r["case"]), {})[r["candidate"]] = r
    return by


def named(at, name):
    """The row of a candidate; one rank and one mask have it under a longer name."""
    found = [r for c, r in at.items() if c == name or c.startswith(name + " contiguous") or c.startswith(name + " slices=")]
    return found[0] if found else None


def times(r):
    return "{:.3g} [{:.3g}, {:.3g}]".format(r["ratio"], r["ratio_low"], r["ratio_high"])


def row(ranks, case, at):
    """A line of the table: one pass on so many ranks, and blockshock compared with each of PEERS."""
    first = at.get(FIRST)
    if first is None:
        return [case, str(ranks), "not measured"] + ["-"] * len(PEERS)
    measured = "measured_ms" in first
    cells = []
    for name, _ in PEERS:
        r = named(at, name)
        if measured:
            cells.append(times(r) if r is not None and "ratio" in r else "-")
        else:
            cells.append("{:.3g}".format(r["predicted_ms"] / first["predicted_ms"]) if r is not None and "predicted_ms" in r else "-")
    return [case, str(ranks), "{:.2f}".format(first["measured_ms"]) if measured else "{:.2f}, predicted".format(first["predicted_ms"])] + cells


def rows_of_answer(rows, head):
    by = cases(rows)
    names = ["pass", "ranks", "blockshock, ms"] + [text for _, text in PEERS]
    lines = [names, ["---"] * len(names)] + [row(ranks, case, by[ranks, case]) for ranks, case in sorted(by, key=lambda k: k[0])]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def source(rows, head):
    """Where the figures are from."""
    day, tree = head["run"].split()[:2]
    told = [r for r in rows if "ratio" in r]
    unsure = sum(r.get("cause") == "machine disturbed" for r in told)
    lines = [f"Measured on {head['machine'][0]}, {day}, tree {tree}, N = K = {head['N']}, by `make answer`. It runs the "
             f"{len(head['commands']['answer'])} commands in the first line of docs/data/{day}-answer.jsonl. The first one is", "",
             "<!-- not run: minutes on a machine that does nothing else -->", "",
             "```", head["commands"]["answer"][0], "```"]
    if unsure:
        lines += ["", f"In {unsure} of {len(told)} comparisons other programs took the processor at the same time. Their intervals are wider."]
    return "\n".join(lines)


def untried(rows, head):
    by = cases(rows)
    measured = sorted({ranks for (ranks, _), at in by.items() if any("measured_ms" in r for r in at.values())})
    predicted = sorted({ranks for ranks, _ in by} - set(measured))
    dtypes = sorted({case.split(", ")[1] for _, case in by})
    tokens = sorted({int(case.split(", ")[2].split()[0]) for _, case in by})
    left = [f"{text} in \"{case}\" on {ranks} ranks" for (ranks, case), at in by.items() if ranks > 1 and ranks in measured
            for name, text in PEERS if named(at, name) is None or "ratio" not in named(at, name)]
    lines = [f"**Not tried**: GPUs; ranks on several machines; AMX; N and K other than {head['N']}; tokens other than "
             f"{' and '.join(map(str, tokens))}; dtypes other than {' and '.join(dtypes)}; "
             f"numbers of ranks other than {' and '.join(map(str, measured))}"
             + (f" ({', '.join(map(str, predicted))} predicted: they would take turns on these cores)." if predicted else ".")]
    if left:
        lines.append("**Without a figure**: " + "; ".join(left) + ".")
    return "\n\n".join(lines)


# ---- the chart

WIDTH, LEFT, RIGHT, ROW, TOP = 860, 330, 150, 18, 62


def chart(rows, head):
    """Each measured ratio of several ranks with its interval, on a logarithmic axis; right of 1 blockshock is faster."""
    lines, y = [], TOP
    drawn = [(ranks, case, [(text, named(at, name)) for name, text in PEERS]) for (ranks, case), at in cases(rows).items()
             if ranks > 1 and any("ratio" in r for r in at.values())]
    every = [r[k] for _, _, peers in drawn for _, r in peers if r is not None and "ratio" in r for k in ("ratio_low", "ratio_high")]
    low, high = min(every + [0.8]), max(every + [1.25])

    def at(ratio):
        return LEFT + (WIDTH - LEFT - RIGHT) * (math.log(ratio) - math.log(low)) / (math.log(high) - math.log(low))

    def text(x, y, words, anchor="start", kind=""):
        return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{kind}>{html.escape(words)}</text>'
    for ranks, case, peers in drawn:
        y += 10
        lines.append(text(12, y + 4, f"{case}, {ranks} ranks", kind=' class="head"'))
        y += ROW
        for name, r in peers:
            if r is None or "ratio" not in r:
                continue
            lines.append(text(28, y + 4, name))
            lines.append(f'<path d="M{at(r["ratio_low"]):.1f} {y}H{at(r["ratio_high"]):.1f}"/>'
                         f'<circle cx="{at(r["ratio"]):.1f}" cy="{y}" r="3.5"/>')
            lines.append(text(WIDTH - 12, y + 4, times(r), "end"))
            y += ROW
    grid = [f'<path class="{"one" if t == 1 else "grid"}" d="M{at(t):.1f} {TOP - 10}V{y}"/>' + text(at(t), y + 16, f"{t:g}", "middle")
            for t in (0.25, 0.5, 0.7, 0.8, 0.9, 1, 1.25, 1.5, 2, 2.5, 3, 4) if low <= t <= high]
    day = head["run"].split()[0]
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 30}" width="{WIDTH}" height="{y + 30}" '
                      'role="img" aria-label="blockshock beside other layers">',
                      "<style>svg{background:#fff}text{font:12px sans-serif;fill:#222}.title{font-size:15px;font-weight:bold}.head{font-weight:bold}"
                      "path{stroke:#1f5fa8;stroke-width:2;fill:none}.grid{stroke:#ddd;stroke-width:1}.one{stroke:#555;stroke-width:1.5}circle{fill:#1f5fa8}</style>",
                      text(12, 22, "How many times as fast blockshock (mask 1100/0011) is, with 95 % intervals", kind=' class="title"'),
                      text(12, 42, f"{head['machine'][0]}, N = K = {head['N']}, {day}; right of 1 blockshock is faster, left of it the other one"),
                      *grid, *lines, "</svg>", ""])
