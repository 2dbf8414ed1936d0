#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Does what a page of the documentation says: every command and every listing, in order, against an installation of a build.

  run_docs.py SOURCE BUILD [--prefix DIR] PAGE...    exit 0: all is as the pages say; 1: it is not, and which line

DIR is where this build has been installed; without it that is done first. BUILD/tests/transcripts/<first page>.txt gets every
command with what it printed.

A page's blocks (indented by four spaces, or fenced) are commands for bash and must end in 0. A block whose lines begin with
"$ " is a session: what stands below a command must be the shape of what it prints. A section (##) begins in an empty folder;
<prefix> stands for the installation. Commands in the text (`bsrun ...`) are run where they stand: those with placeholders
by their help, `make ...` as make -n, `ctest ...` as ctest -N. HTML comments, which no reader sees, say what is otherwise:

  <!-- do: COMMANDS -->          also run these, here
  <!-- exit: N -->               the next block ends in N
  <!-- in: COMMAND -->           the next block stands in what the command prints
  <!-- file: PATH -->            the next block stands in this file of the section's folder ($SOURCE/... of the tree)
  <!-- save: PATH -->            the next block is this file
  <!-- output -->                the next block is the shape of lines that the last command printed
  <!-- long [REGEX]: REASON -->  the next block runs whole only where BS_TEST_BIG is set; else of a run only its options are
                                 read (--print-config), and commands that match are left out
  <!-- quick [REGEX]: WORDS -->  the commands of the next block that match (those of bsrun) have these words too, which leave them less
                                 to do, but where BS_TEST_BIG is set
  <!-- not run: REASON -->       neither the next block...
  <!-- not run: `COMMAND`: REASON -->  ... nor this command in the text of the page
"""
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile

COMMANDS = ("bsrun", "bs-conformance", "make", "ctest", "pkg-config", "scripts/")
DIRECTIVES = ("do", "exit", "in", "file", "save", "output", "long", "quick", "not run")


class Wrong(Exception):
    pass


class Item:
    def __init__(self, kind, line, text, more=""):
        self.kind, self.line, self.text, self.more = kind, line, text, more


def items_of(page):
    """The page as items in order: section, comment, block, span."""
    lines = page.split("\n")
    at, blank, items, prose = 0, True, [], []

    def end_of_prose():
        text = " ".join(t for _, t in prose)
        for m in re.finditer(r"`([^`]+)`", text):
            seen, line = 0, prose[0][0] if prose else 0
            for number, t in prose:
                if seen > m.start():
                    break
                line, seen = number, seen + len(t) + 1
            items.append(Item("span", line, m.group(1)))
        prose.clear()

    while at < len(lines):
        line, begin = lines[at], at + 1
        if line.startswith("<!--"):
            end_of_prose()
            text = line
            while "-->" not in text:
                at += 1
                text += "\n" + lines[at]
            body = text[4:text.index("-->")].strip()
            name = re.match(r"(not run|[a-z]+)", body)
            if not name or name.group(1) not in DIRECTIVES:
                raise Wrong(f"line {begin}: unknown words in a comment: {body[:40]}")
            else:
                more = re.match(r"\s*(?:\[(.*?)\])?\s*:?\s*(.*)", body[name.end():], re.S)
                items.append(Item(name.group(1), begin, more.group(2).strip(), more.group(1) or ""))
        elif line.startswith("```"):
            end_of_prose()
            block = []
            at += 1
            while not lines[at].startswith("```"):
                block.append(lines[at])
                at += 1
            items.append(Item("block", begin, "\n".join(block)))
        elif line.startswith("    ") and blank:
            end_of_prose()
            block = []
            while at < len(lines) and (lines[at].startswith("    ") or (not lines[at] and at + 1 < len(lines)
                                                                        and lines[at + 1].startswith("    "))):
                block.append(lines[at][4:])
                at += 1
            at -= 1
            items.append(Item("block", begin, "\n".join(block)))
        elif line.startswith("## "):
            end_of_prose()
            items.append(Item("section", begin, line[3:]))
        elif line.strip():
            prose.append((begin, line))
        else:
            end_of_prose()
        blank = not lines[at].strip() or line.startswith("<!--")
        at += 1
    end_of_prose()
    return items


def shape(line):
    """What of a line is always the same: numbers, paths and times are not."""
    line = re.sub(r"[^\s(,;]*/[^\s:,;)]*", "PATH", line.strip())
    line = re.sub(r"\d+(?:[-.:T]\d+)*Z?", "N", line)
    return re.sub(r"\s+", " ", line)


def squeezed(text):
    return re.sub(r"\s+", " ", text).strip()


def install(build, prefix):
    done = subprocess.run(["cmake", "--install", build, "--prefix", prefix], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True)
    if done.returncode:
        raise Wrong("cmake --install: " + done.stdout[-2000:])


class Reader:
    def __init__(self, source, build, scratch, prefix):
        self.transcript = []
        self.source, self.build, self.scratch = source, build, scratch
        self.prefix = prefix or os.path.join(scratch, "prefix")
        self.big = bool(os.environ.get("BS_TEST_BIG"))
        self.ran = self.compared = 0
        self.output = ""
        if not prefix:
            install(build, self.prefix)
        libs = [d for d, _, names in os.walk(self.prefix) if "libblockshock.so" in names]
        self.plugins = os.path.join(libs[0], "blockshock", "plugins-0")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("BS_") and k not in ("MAKEFLAGS", "MFLAGS")}
        self.env.update(PATH=os.path.join(self.prefix, "bin") + ":" + os.environ["PATH"], SOURCE=source,
                        PKG_CONFIG_PATH=os.path.join(libs[0], "pkgconfig"), XDG_CACHE_HOME=os.path.join(scratch, "cache"))
        self.own = set(os.listdir(self.plugins))

    def begin_section(self):
        """An empty folder; what was installed by the section before is gone."""
        self.folder = tempfile.mkdtemp(dir=self.scratch)
        for name in set(os.listdir(self.plugins)) - self.own:
            os.unlink(os.path.join(self.plugins, name))

    def shell(self, text, want=0):
        text = text.replace("<prefix>", self.prefix)
        self.ran += 1
        child = subprocess.Popen(["bash", "-euo", "pipefail", "-c", text], cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                                 start_new_session=True)
        try:
            self.output, _ = child.communicate(timeout=600)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            raise Wrong("no end within 600 s: " + text) from None
        self.transcript.append("$ " + text.replace("\n", "\n> ") + "\n" + self.output)
        if child.returncode != want:
            raise Wrong(f"exit {child.returncode}, the page says {want}: {text}\n{self.output[-3000:]}")
        return self.output

    # ---- blocks

    def must_match(self, expected, printed, whole):
        """Every line's shape is there, in order; whole: and no other line is. "..." stands for any lines."""
        self.compared += 1
        joined = re.sub(r"\n {8,}(?=\S)", " ", re.sub(r"/\n {8,}(?=\S)", "/", printed))  # cells that took several lines
        have = [line for line in joined.split("\n") if line.strip()]
        at, free = 0, not whole
        for line in (e for e in expected if e.strip()):
            if line.strip() == "...":
                free = True
                continue
            while at < len(have) and free and shape(have[at]) != shape(line):
                at += 1
            if at == len(have) or shape(have[at]) != shape(line):
                raise Wrong(f"the page shows\n  {line}\nwhich is, in shape,\n  {shape(line)}\nbut what was printed is\n{printed[-3000:]}")
            at, free = at + 1, not whole
        if whole and not free and at < len(have):
            raise Wrong(f"the page does not show\n  {have[at]}")

    def session(self, text):
        command, expected = None, []
        for line in text.split("\n") + ["$ "]:
            if not line.startswith("$ "):
                expected.append(line)
                continue
            if command is not None:
                self.must_match(expected, self.shell(command), True)
            command, expected = line[2:], []

    def options_only(self, text, left_out):
        """Of a run only its options are read: the command line is whole, whatever the time it would take."""
        for line in text.split("\n"):
            if left_out and re.search(left_out, line):
                continue
            words = shlex.split(line, comments=True)
            if words[:1] == ["bsrun"] and (len(words) == 1 or words[1].startswith("-")) and "--print-config" not in words:
                line = shlex.join(words + ["--print-config"])
            self.shell(line)

    @staticmethod
    def quickened(text, pattern, words):
        """The block with words behind each command that matches, in front of its comment."""
        lines, found = re.sub(r"\\\n\s*", " ", text).split("\n"), 0
        for i, line in enumerate(lines):
            if re.search(pattern or "^bsrun ", line):
                lines[i] = re.sub(r"(\s+#.*)?$", lambda m: f" {words}{m.group()}", line, count=1)
                found += 1
        if not found:
            raise Wrong(f"quick: no command matches '{pattern}'")
        return "\n".join(lines)

    def file_of(self, name):
        return name.replace("$SOURCE", self.source) if name.startswith("$SOURCE") else os.path.join(self.folder, name)

    def block(self, item, directive):
        kind = directive.kind if directive else ""
        if kind == "not run":
            if not directive.text:
                raise Wrong("not run: no reason is given")
        elif kind == "save":
            with open(self.file_of(directive.text), "w", encoding="utf-8") as f:
                f.write(item.text + "\n")
        elif kind == "in":
            self.compared += 1
            if squeezed(item.text) not in squeezed(self.shell(directive.text)):
                raise Wrong(f"not in what `{directive.text}` prints: {item.text}\n{self.output[-3000:]}")
        elif kind == "file":
            self.compared += 1
            with open(self.file_of(directive.text), encoding="utf-8") as f:
                if "\n" + item.text.rstrip() + "\n" not in "\n" + f.read():
                    raise Wrong(f"{directive.text} has another text than the page")
        elif kind == "output":
            self.must_match(item.text.split("\n"), self.output, False)
        elif kind == "long" and not self.big:
            self.options_only(item.text, directive.more)
        elif kind == "quick" and not self.big:
            self.shell(self.quickened(item.text, directive.more, directive.text))
        elif item.text.startswith("$ "):
            self.session(item.text)
        else:
            self.shell(item.text, int(directive.text) if kind == "exit" else 0)

    # ---- commands in the text

    def verbs_of(self, words):
        """The verbs that a command line begins with, one or two."""
        verbs = []
        for word in words[:2]:
            if word not in subprocess.run(["bsrun", "completion", "words", "verbs", *verbs], env=self.env, stdout=subprocess.PIPE,
                                          text=True).stdout.split():
                break
            verbs.append(word)
        return verbs

    def span(self, text):
        text = squeezed(text)
        words = text.split(" ")
        if not text.startswith(COMMANDS) or len(words) == 1 and "/" not in text:
            return
        if words[0] == "bsrun":
            verbs = self.verbs_of(words[1:])
            if re.search(r"(?<![\w.=-])[A-Z]+(?![\w.=-])|[|<]|\.\.\.|…", text) or len(verbs) == len(words) - 1:
                plain = [word for word in words[1:3] if re.fullmatch("[a-z]+", word)]
                text = shlex.join(["bsrun"] + plain + ["--help"])
        elif words[0] == "make":
            made = [d for d in sorted(os.listdir(self.folder)) if os.path.exists(os.path.join(self.folder, d, "Makefile"))]
            if "-C" not in words:
                text = f"make -n -C {made[0] if made else shlex.quote(self.source)} {text[5:]}"
        elif words[0] == "ctest":
            # ctest, even -N, writes LastTest.log: in the build it would be that of the ctest which runs this.
            with open(os.path.join(self.folder, "CTestTestfile.cmake"), "w", encoding="utf-8") as f:
                f.write(f'subdirs("{self.build}")\n')
            text = f"ctest --test-dir {shlex.quote(self.folder)} -N {text[6:]} | grep 'Total Tests: [1-9]'"
        elif text.startswith("scripts/"):
            if not os.access(os.path.join(self.source, words[0]), os.X_OK):
                raise Wrong(f"there is no {words[0]}")
            return
        self.shell(text)

    def page(self, path):
        with open(path, encoding="utf-8") as f:
            text = f.read()
        try:
            items = items_of(text)
        except Wrong as why:
            raise Wrong(f"{path}: {why}") from None
        left_out = [i.text for i in items if i.kind == "not run" and i.text.startswith("`")]
        exceptions = {squeezed(t.split("`")[1]) for t in left_out}
        unused = set(exceptions)
        directive = None
        self.begin_section()
        for item in items:
            try:
                if item.kind == "section":
                    self.begin_section()
                elif item.kind == "do":
                    self.shell(item.text)
                elif item.kind == "block":
                    self.block(item, directive)
                    directive = None
                elif item.kind == "span":
                    if squeezed(item.text) in exceptions:
                        unused.discard(squeezed(item.text))
                    else:
                        self.span(item.text)
                elif not (item.kind == "not run" and item.text.startswith("`")):
                    directive = item
            except (Wrong, OSError) as why:
                raise Wrong(f"{path}:{item.line}: {why}") from None
        if unused:
            raise Wrong(f"{path}: there is no such command in the text, yet it is not run: {', '.join(unused)}")
        if directive:
            raise Wrong(f"{path}:{directive.line}: '{directive.kind}' has no block")


def main():
    if len(sys.argv) < 4:
        print(__doc__, file=sys.stderr)
        return 2
    source, build, *pages = sys.argv[1:]
    prefix = os.path.abspath(pages[1]) if pages[0] == "--prefix" else None
    # Beside the build: what lies in a folder that anyone may write to is not trusted as a plugin.
    scratch = tempfile.mkdtemp(prefix="docs-", dir=os.path.join(build, "tests"))
    reader = None
    pages = pages[2:] if prefix else pages
    try:
        reader = Reader(os.path.abspath(source), os.path.abspath(build), os.path.abspath(scratch), prefix)
        for page in pages:
            reader.page(page)
        print(f"{reader.ran} commands run, {reader.compared} listings and outputs compared")
        return 0
    except Wrong as why:
        print(f"run_docs: {why}", file=sys.stderr)
        return 1
    finally:
        if reader:
            folder = os.path.join(build, "tests", "transcripts")
            os.makedirs(folder, exist_ok=True)
            name = os.path.splitext(os.path.basename(pages[0]))[0] + ".txt"
            with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
                f.write("\n".join(reader.transcript))
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
