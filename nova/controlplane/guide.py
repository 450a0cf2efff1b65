"""docs/guide/openstack.md as a program: its files are this cloud's configuration, and its commands are typed.

The page marks what is typed here: ``<!-- typed by nova/controlplane/guide.py -->``. Each such block is typed
once, by the words that it begins with; ``Reader.require_all`` names those that nobody typed.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/guide/openstack.md"
_MARK = "typed by nova/controlplane/guide.py"
# A block in a fence, with the paragraph before it.
_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!-- (.*?) -->")
_PATH = re.compile(r"`(/[\w./-]+)`")
# The compute host of the page.
_HOST = "compute1"


class Differs(AssertionError):
    """The page says something else than what is so."""


@dataclass(frozen=True)
class Block:
    """A block of the page: a file's lines, or commands."""

    kind: str
    # The file that the paragraph before names.
    path: str | None
    text: str
    is_typed: bool


def blocks(page: str) -> Iterator[Block]:
    """Those in fences, in the page's order."""
    typed, end = False, 0
    for fence in _FENCE.finditer(page):
        before = page[end : fence.start()]
        end = fence.end()
        this = None
        for mark in _COMMENT.findall(before):
            if mark.startswith("not typed:"):
                this = False
            elif mark.startswith(("typed by ", "not typed from here on:")):
                typed = mark == _MARK
        paragraph = _COMMENT.sub("", before).strip().split("\n\n")[-1]
        path = _PATH.search(paragraph)
        yield Block(fence[1], path[1] if path else None, fence[2], typed if this is None else this)


def lines_of(path: str) -> str:
    """All lines of the page for a file."""
    found = [
        block.text
        for block in blocks(PAGE.read_text())
        if block.is_typed and block.path == path and block.kind != "sh"
    ]
    if not found:
        raise Differs(f"{PAGE.name} has nothing for {path}")
    return "\n".join(found)


def options(path: str) -> dict[str, dict[str, str | list[str]]]:
    """The options of the page for an ini file; those that stand more than once are lists."""
    found: dict[str, dict[str, str | list[str]]] = {}
    section = ""
    for line in lines_of(path).splitlines():
        if line.startswith("["):
            section = line.strip("[] ")
        elif line.strip() and not line.startswith("#"):
            name, value = (word.strip() for word in line.split("=", 1))
            held = found.setdefault(section, {})
            before = held.get(name)
            if before is None:
                held[name] = value
            else:
                held[name] = [*(before if isinstance(before, list) else [before]), value]
    return found


class Reader:
    """Types the page's commands in a directory of its own, as an administrator of the cloud.

    ``ssh`` and ``scp`` to the page's host are this machine's shell and files, since the compute runs here.
    """

    def __init__(self, place: Path, programs: Path, variables: Mapping[str, str]) -> None:
        self._place = place
        self._left = [
            block.text for block in blocks(PAGE.read_text()) if block.is_typed and block.kind == "sh"
        ]
        bin_ = place / "bin"
        bin_.mkdir(parents=True)
        # What ssh runs has the same programs.
        self.program("ssh", 'shift\nexec sh -c "$*"')
        (place / "admin-openrc").write_text(
            "".join(f"export {name}='{value}'\n" for name, value in variables.items())
        )
        (place / "admin-openrc").chmod(0o600)
        self._environment = {
            name: value for name, value in os.environ.items() if not name.startswith("OS_")
        } | {"PATH": f"{bin_}:{programs}:{os.environ['PATH']}"}

    def program(self, name: str, script: str) -> None:
        """A program that the commands find first."""
        path = self._place / "bin" / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def files_of_host(self, there: str, here: Path) -> None:
        """Where scp finds a directory of the host."""
        self.program(
            "scp",
            f"for word; do\n  case $word in {_HOST}:{there}/*) word={here}/${{word##*/}} ;; esac\n"
            '  set -- "$@" "$word"\n  shift\ndone\nexec cp "$@"',
        )

    def type(self, begins: str, code: int = 0, **replaced: str) -> str:
        """Types the block that begins so, and returns what it prints.

        Words in capitals stand for what only this cloud knows.
        """
        for place, text in enumerate(self._left):
            if text.startswith(begins):
                del self._left[place]
                break
        else:
            raise Differs(f"{PAGE.name} has no block, or no second one, that begins with: {begins}")
        for word, value in replaced.items():
            text = re.sub(rf"\b{word}\b", value, text)
        # As in the shell of an administrator who has read the file once.
        done = subprocess.run(
            ["bash", "-euc", f". ./admin-openrc\n{text}"],
            cwd=self._place,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        if done.returncode != code:
            said = (done.stdout + done.stderr).strip()[-2000:]
            raise Differs(f"{PAGE.name}: {text.strip()}: ended with {done.returncode}: {said}")
        return done.stdout

    def require_all(self) -> None:
        """Every block of the page was typed."""
        if self._left:
            raise Differs(f"{PAGE.name}: nobody typed: {'; '.join(text.strip() for text in self._left)}")
