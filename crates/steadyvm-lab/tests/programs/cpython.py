"""Runs CPython's own tests and prints one line a case: "case NAME: RESULT".

Each class of cases runs in a process of its own: one that hangs, or brings its process down, costs the
others nothing. Two runs are compared line by line, so no line has a time, address or reason that may
differ; why a case failed goes to standard error.

With --part K/N every Nth class is run, beginning with the Kth, so that N runs are all of a module.

usage: cpython.py [--patience SECONDS] [--part K/N] MODULE[.CLASS]...
"""

import argparse
import errno
import os
import signal
import socket
import sys
import time
import unittest


class Lines(unittest.TestResult):
    """Says each case's result once: the worst of its parts."""

    def startTest(self, test):
        super().startTest(test)
        self.outcome = "ok"

    def worse(self, outcome, test, error):
        self.outcome = outcome
        print(f"{test.id()}: {outcome}", self._exc_info_to_string(error, test), sep="\n",
              file=sys.stderr, flush=True)

    def addFailure(self, test, error):
        self.worse("FAIL", test, error)
        self.told_outside_of_a_case(test)

    def addError(self, test, error):
        self.worse("ERROR", test, error)
        self.told_outside_of_a_case(test)

    def addSubTest(self, test, subtest, error):
        if error is not None:
            kind = "FAIL" if issubclass(error[0], test.failureException) else "ERROR"
            self.worse(kind, subtest, error)

    def addSkip(self, test, reason):
        if not isinstance(test, unittest.TestCase):
            print(f"case {test.id()}: skipped", flush=True)
        self.outcome = "skipped"

    def addExpectedFailure(self, test, error):
        self.outcome = "expected failure"

    def addUnexpectedSuccess(self, test):
        self.outcome = "unexpected success"

    def told_outside_of_a_case(self, test):
        """Setting up a class or a module is no case, and gets no stopTest()."""
        if not isinstance(test, unittest.TestCase):
            print(f"case {test.id()}: {self.outcome}", flush=True)

    def stopTest(self, test):
        super().stopTest(test)
        print(f"case {test.id()}: {self.outcome}", flush=True)


def cases_of(suite):
    for part in suite:
        if isinstance(part, unittest.TestSuite):
            yield from cases_of(part)
        else:
            yield part


def by_class(names):
    """The cases of modules or classes, class by class in their order."""
    classes = {}
    for name in names:
        for case in cases_of(unittest.defaultTestLoader.loadTestsFromName(name)):
            classes.setdefault(type(case), []).append(case)
    return list(classes.items())


def run(kind, cases, patience):
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(patience)
        unittest.TestSuite(cases).run(Lines())
        sys.stdout.flush()
        os._exit(0)
    start = time.monotonic()
    _, status = os.waitpid(child, 0)
    print(f"{kind.__qualname__} took {time.monotonic() - start:.1f} s", file=sys.stderr, flush=True)
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:
        pass
    if status:
        number = os.waitstatus_to_exitcode(status)
        why = "HANGS" if number == -signal.SIGALRM else f"ENDS {number}"
        print(f"case {kind.__module__}.{kind.__qualname__}: {why}", flush=True)


def whose():
    """Says whose sockets these are: outsourced ones have no SO_ZEROCOPY."""
    with socket.socket() as stream:
        try:
            stream.setsockopt(socket.SOL_SOCKET, 60, 1)
        except OSError as error:
            return "outsourced" if error.errno == errno.ENOPROTOOPT else str(error)
    return "the guest's own"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--patience", type=int, default=120)
    parser.add_argument("--part", default="1/1")
    parser.add_argument("names", nargs="+")
    arguments = parser.parse_args()
    from test import support
    # Of servers of its own on loopback, for test_socketserver.
    support.use_resources = ["network"]
    os.chdir(os.environ.get("TMPDIR", "/tmp"))
    print("sockets:", whose(), flush=True)
    part, parts = map(int, arguments.part.split("/"))
    for kind, cases in by_class(arguments.names)[part - 1::parts]:
        run(kind, cases, arguments.patience)


main()
