"""The table of tests that do not pass, in README.md next to this file."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

TABLE = Path(__file__).with_name("README.md")


@dataclass(frozen=True)
class Difference:
    """A row of the table: a test that does not pass."""

    suite: str
    test: str
    #: Start methods and versions of CPython to which the row is limited, as the table has them.
    where: str

    def names(self, test: str) -> bool:
        """Returns whether the row is about a test; ``*`` stands for any text."""
        parts = map(re.escape, self.test.split("*"))
        return re.fullmatch(".*".join(parts), test) is not None

    def applies(self, suite: str, method: str) -> bool:
        """Returns whether the row is about a suite, with a start method, of this interpreter."""
        limits = self.where.replace(",", " ").split()
        methods = [limit for limit in limits if not limit[0].isdigit() and limit[0] != "-"]
        versions = [limit for limit in limits if limit not in methods]
        return (
            self.suite == suite
            and (not methods or method in methods)
            and all(_includes(version) for version in versions)
        )


def _includes(limit: str) -> bool:
    """Returns whether ``3.12-`` (and later) or ``-3.11`` (and earlier) includes this version."""
    first, _, last = limit.partition("-")
    version = sys.version_info[:2]
    return _number(first or "0.0") <= version <= _number(last or "99.0")


def _number(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    return int(major), int(minor)


def read() -> list[Difference]:
    """Reads the table: rows of three cells below the heading of their suite."""
    found: list[Difference] = []
    suite = ""
    for line in TABLE.read_text().splitlines():
        if line.startswith("## "):
            suite = line[3:]
        elif row := re.fullmatch(r"\| `([^`]+)` \|([^|]*)\|[^|]+\|", line):
            difference = Difference(suite, row[1], row[2].strip())
            if difference in found:
                raise ValueError(f"{TABLE}: {row[1]} is listed twice")
            found.append(difference)
    return found
