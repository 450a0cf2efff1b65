"""The package answers as the command does, says what is wrong, and lets other threads run."""

import json
import pathlib
import threading
import time
import unittest

import steadyvm

ROOT = pathlib.Path(__file__).resolve().parents[2]


def request(tasks, period=10, pcpus=1, **vm):
    settings = {"name": "a", "scheduler": "edf", "interface": "prm", "period": period, **vm}
    settings["tasks"] = [{"c": c, "d": d, "t": t} for c, d, t in tasks]
    return {"vms": [settings], "host": {"pcpus": pcpus, "scheduler": "pedf"}}


class Plan(unittest.TestCase):
    def test_known_budgets(self):
        tasks = [(7, 50, 50), (9, 75, 75)]
        for scheduler, budget in [("edf", 3), ("dm", 4)]:
            self.assertEqual(steadyvm.minimal_budget(tasks, scheduler, 10), budget)
            plan = steadyvm.plan(request(tasks, scheduler=scheduler))
            self.assertTrue(plan["feasible"])
            self.assertEqual(plan["schema_version"], 1)
            self.assertEqual(plan["min_pcpus"], 1)
            interface = plan["vms"][0]["interface"]
            self.assertEqual((interface["period"], interface["budget"]), (10, budget))
            self.assertEqual([v["budget"] for v in plan["vms"][0]["vcpus"]], [budget])

    def test_rejections_explain_themselves(self):
        plan = steadyvm.plan(request([(7, 10, 10), (9, 12, 12)]))
        self.assertFalse(plan["feasible"])
        (why,) = plan["explanations"]
        self.assertGreater(why["demand"], why["supply"])
        self.assertEqual(why["task"], "tasks[1]")
        self.assertTrue(plan["suggestions"])

    def test_bad_input_is_a_value_error_with_its_place(self):
        with self.assertRaisesRegex(ValueError, r"vms\[0\]\.tasks\[0\].*c is 0"):
            steadyvm.plan(request([(0, 10, 10)]))
        with self.assertRaisesRegex(ValueError, "line 1 column"):
            steadyvm.plan_json('{"vms": 1}')
        with self.assertRaisesRegex(ValueError, "scheduler"):
            steadyvm.minimal_budget([(1, 2, 2)], "rr", 2)
        with self.assertRaises(ValueError):
            steadyvm.supply_bound(5, 3, -1)
        with self.assertRaises(OverflowError):
            steadyvm.supply_bound(2**70, 3, 1)

    def test_supply_and_response_times(self):
        windows = [4, 5, 6, 7, 9, 10, 12, 15]
        supply = [steadyvm.supply_bound(5, 3, t) for t in windows]
        self.assertEqual(supply, [0, 1, 2, 3, 3, 4, 6, 7])
        self.assertEqual(steadyvm.supply_bound(5, 5, 20, 2), 16)
        tasks = [(1, 4, 4), (1, 5, 5), (3, 9, 9), (3, 18, 18)]
        self.assertEqual(steadyvm.response_times(tasks), [1, 2, 7, 18])

    def test_the_example_file(self):
        path = ROOT / "examples" / "steadyvm.toml"
        plan = steadyvm.plan_file(path)
        self.assertTrue(plan["feasible"])
        self.assertEqual(plan, json.loads(steadyvm.plan_toml(path.read_text())))
        self.assertIn("feasible", steadyvm.plan_text(path.read_text()))
        self.assertTrue(steadyvm.plan_svg(path.read_text()).startswith("<svg"))

    def test_other_threads_run_meanwhile(self):
        tasks = [(1 + i % 7, 3000 + i, 3100 + i) for i in range(60)]
        text = json.dumps(request(tasks, scheduler="gedf", interface="mpr", period=100))
        took = []

        def compute():
            start = time.monotonic()
            steadyvm.plan_json(text)
            took.append(time.monotonic() - start)

        thread = threading.Thread(target=compute)
        last, longest = time.monotonic(), 0.0
        thread.start()
        while thread.is_alive():
            now = time.monotonic()
            last, longest = now, max(longest, now - last)
        longest = max(longest, time.monotonic() - last)
        thread.join()
        # With the GIL held, this thread would have stood still for all of the computation.
        self.assertLess(longest, took[0] / 2)


if __name__ == "__main__":
    unittest.main()
