"""The file that the role writes is the mapping of the inventory, and steadyvm reads it."""

import json
import os
import subprocess
import sys
import tempfile
import tomllib
import unittest
from pathlib import Path

ROLE = Path(__file__).parents[1] / "roles" / "steadyvm"
sys.path.insert(0, str(ROLE / "filter_plugins"))

import steadyvm  # noqa: E402
from ansible.errors import AnsibleFilterError  # noqa: E402

STEADYVM = os.environ["STEADYVM"]
CONFIGURATION = {
    "net": {"budget_packets": 64},
    "class": {"relay": {"extends": "rt", "irq": 82}, "others": {"extends": "best-effort", "irq": "normal"}},
    "nic": [{"name": "eth1", "class": "relay"}, {"name": "eth0", "class": "others"}],
    "vm": [{"name": "relay \"1\"", "class": "relay"}, {"name": "bulk", "class": "others"}],
}


def dry_run(text):
    """What steadyvm says of a file."""
    with tempfile.TemporaryDirectory() as place:
        words = [STEADYVM, "apply", "--dry-run", "--json", "--state-dir", place, "-"]
        return subprocess.run(words, input=text, capture_output=True, text=True, check=False)


class File(unittest.TestCase):
    """Filters of the role."""

    def test_a_mapping_comes_back_from_its_file(self):
        odd = {
            "n": 1, "on": True, "share": 0.5, "quoted key": "a\"b\\\n\t\x7f\u00e9\U0001f600", "none": None,
            "class": {"a.b": {"deep": {"list": [1, 2], "empty": {}}}}, "vm": [{"tasks": [{"c": "2ms"}]}, {"users": []}],
        }
        for mapping in (CONFIGURATION, odd, {}):
            wanted = {word: it for word, it in mapping.items() if it is not None}
            self.assertEqual(tomllib.loads(steadyvm.steadyvm_toml(mapping)), wanted)

    def test_steadyvm_reads_the_file(self):
        done = dry_run(steadyvm.steadyvm_toml(CONFIGURATION))
        # This machine has no such cards and VMs: 1 says that parts are not served, 2 would be a wrong file.
        self.assertIn(done.returncode, (0, 1), done.stderr)
        self.assertIn("netdev_budget", done.stdout)

    def test_steadyvm_names_a_wrong_key_with_its_line(self):
        done = dry_run(steadyvm.steadyvm_toml({"net": {"budget_packet": 64}}))
        self.assertEqual(done.returncode, 2)
        self.assertIn("unknown field `budget_packet`", done.stderr)

    def test_what_is_no_mapping_is_refused(self):
        for wrong in ("text", [1], {"net": {"budget_packets": object()}}):
            with self.assertRaises(AnsibleFilterError):
                steadyvm.steadyvm_toml(wrong)

    def test_a_change_is_one_that_steadyvm_tells(self):
        self.assertTrue(steadyvm.steadyvm_changes({"steps": [{}], "taken_back": []}))
        self.assertTrue(steadyvm.steadyvm_changes({"steps": [], "taken_back": [{}]}))
        self.assertTrue(steadyvm.steadyvm_changes({"steps": [], "taken_back": {"restored": 1}}))
        self.assertTrue(steadyvm.steadyvm_changes({"restored": 1}))
        self.assertFalse(steadyvm.steadyvm_changes({"steps": [], "taken_back": [], "restored": 0}))

    @unittest.skipUnless(os.geteuid() == 0, "only root applies a file")
    def test_an_apply_of_what_the_host_has_and_its_undo_are_no_changes(self):
        budget = int(Path("/proc/sys/net/core/netdev_budget").read_text())
        text = steadyvm.steadyvm_toml({"net": {"budget_packets": budget}})
        self.assertFalse(steadyvm.steadyvm_changes(json.loads(dry_run(text).stdout)))
        with tempfile.TemporaryDirectory() as place:
            for verb, file in (("apply", ["-"]), ("undo", [])):
                words = [STEADYVM, verb, "--json", "--state-dir", place, *file]
                done = subprocess.run(words, input=text, capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertFalse(steadyvm.steadyvm_changes(json.loads(done.stdout)), done.stdout)


if __name__ == "__main__":
    unittest.main()
