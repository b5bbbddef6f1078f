#!/usr/bin/env python3
"""Tests of the report's generator, with records made up here.

    python3 report_test.py
"""
import html.parser
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import compare  # noqa: E402
import page  # noqa: E402
import report  # noqa: E402

STEPS = 60
CHART_STAND_IN = "class Chart{constructor(c,o){Chart.made.push(o)}destroy(){}};Chart.made=[];var s='</script>';\n//# sourceMappingURL=chart.js.map\n"


def record(workers=1, batch=256, noise=0.0, **more):
    """A curve that falls; `noise` moves it as amplified rounding would, growing with the steps."""
    losses = [2.3 * math.exp(-t / 30) + 0.3 + noise * (t / STEPS) * math.sin(3 * t) for t in range(STEPS)]
    made = {
        "program": "fashion_mnist", "reference": workers == 1, "workers": workers, "batch_per_worker": batch, "threads": 1,
        "epochs": 1, "seed": 1, "learning_rate": 0.05, "overlap": "backward", "losses": losses,
        "evaluations": [{"step": STEPS, "accuracy": 0.905, "loss": 0.27}], "images_per_second": 2500.0 * workers,
        "step_s_median": 0.1, "seconds": 60.0, "gradient_bytes": 1686568, "buckets": 2, "communication_s": 0.001,
        "exposed_s": 0.0001, "hidden_share": 0.9, "fingerprints": ["ab" * 32] * workers}
    made.update(more)
    return made


def trace():
    events = []
    for rank in range(2):
        for row, name in ((0, "compute"), (1, "bucket 0")):
            events.append({"name": "thread_name", "ph": "M", "pid": rank, "tid": row, "args": {"name": name}})
        for name, begin, end in (("forward", 0, 10), ("backward", 10, 30), ("wait", 30, 31), ("optimiser", 31, 33)):
            events.append({"name": name, "ph": "X", "pid": rank, "tid": 0, "ts": begin * 1000.0,
                           "dur": (end - begin) * 1000.0, "args": {"step": 7}})
        events.append({"name": "bucket 0", "ph": "X", "pid": rank, "tid": 1, "ts": 15000.0, "dur": 9000.0,
                       "args": {"bytes": 1024, "ready_us": 14999.0}})
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def three(noise_workers=1e-6, noise_shadow=1e-6, **more):
    return (record(workers=2, batch=128, noise=noise_workers, **more), record(), record(noise=-noise_shadow))


def failures(*records):
    return " ".join(compare.assess(*records)["failures"])


class Compare(unittest.TestCase):
    def test_accepts_a_difference_of_the_shadows_size(self):
        self.assertEqual(failures(*three()), "")

    def test_refuses_a_difference_far_beyond_the_shadows(self):
        self.assertIn("loss curves differ", failures(*three(noise_workers=1e-3)))

    def test_refuses_a_first_step_that_differs_by_more_than_one_step_rounds(self):
        workers, single, shadow = three()
        workers["losses"][0] = single["losses"][0] * (1 + 3 * compare.step_bound(256))
        self.assertIn("at step 1 by", failures(workers, single, shadow))

    def test_refuses_a_loss_that_is_no_number(self):
        workers, single, shadow = three()
        workers["losses"][5] = math.nan
        self.assertIn("loss curves differ at step 6", failures(workers, single, shadow))

    def test_is_not_fooled_by_a_shadow_that_is_no_number(self):
        workers, single, shadow = three(noise_workers=1e-3)
        shadow["losses"][5] = math.nan
        self.assertIn("loss curves differ", failures(workers, single, shadow))

    def test_refuses_fewer_steps_than_the_single_process_made(self):
        workers, single, shadow = three()
        del workers["losses"][-1]
        self.assertIn("59 steps", failures(workers, single, shadow))

    def test_refuses_replicas_that_differ_or_are_missing(self):
        self.assertIn("replicas differ", failures(*three(fingerprints=["ab" * 32, "ac" * 32])))
        self.assertIn("replicas differ", failures(*three(fingerprints=["ab" * 32])))

    def test_refuses_a_low_accuracy_and_one_that_is_no_number(self):
        for accuracy in (0.87, math.nan):
            evaluations = [{"step": STEPS, "accuracy": accuracy, "loss": 1}]
            self.assertIn("accuracy", failures(*three(evaluations=evaluations)))

    def test_only_warns_of_a_low_speed_up(self):
        verdict = compare.assess(*three(images_per_second=3000.0))
        self.assertEqual(verdict["failures"], [])
        self.assertIn("1.20", verdict["warnings"][0])

    def test_refuses_runs_of_different_training(self):
        workers, _, shadow = three()
        with self.assertRaisesRegex(compare.RecordError, "not the same training"):
            compare.assess(workers, record(batch=128), shadow)
        with self.assertRaisesRegex(compare.RecordError, "not the same training"):
            compare.assess(workers, record(seed=2), shadow)

    def test_tolerance_never_falls_while_the_loss_does_not(self):
        single = [1.0] * 40
        shadow = [1.0 + (1e-6 if t in (10, 20) else 0.0) for t in range(40)]
        tolerance = compare.tolerances(single, shadow, 256)
        self.assertEqual(tolerance, sorted(tolerance))
        self.assertAlmostEqual(tolerance[0], compare.step_bound(256) + compare.FACTOR * 1e-6, delta=1e-12)

    def test_names_a_record_that_is_cut_short(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "cut.json")
            for text in ('{"losses": [1.0', "{}", '{"losses": []}'):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
                with self.assertRaisesRegex(compare.RecordError, "cut.json"):
                    compare.read_record(path)


class Structure(html.parser.HTMLParser):
    """Scripts of a page, and everything that a browser would load."""

    def __init__(self, text):
        super().__init__()
        self.scripts, self.loads, self.open, self.inside = [], [], [], None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.loads += [(tag, name, value) for name, value in attrs if name in ("src", "srcset", "href", "data", "action")]
        if tag not in ("meta", "link", "br", "img"):
            self.open.append(tag)
        if tag == "script":
            self.inside = dict(attrs).get("type", "code")
            self.scripts.append([self.inside, ""])

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-1:]}"
        self.open.pop()
        self.inside = None

    def handle_data(self, text):
        if self.inside:
            self.scripts[-1][1] += text


def made_page(chart=CHART_STAND_IN, name="fashion_mnist"):
    workers, single, shadow = three(program=name)
    verdict = compare.assess(workers, single, shadow)
    return page.page(report.page_data(workers, single, shadow, verdict, trace()), chart)


class Page(unittest.TestCase):
    def test_closes_every_element_and_holds_three_scripts(self):
        found = Structure(made_page())
        self.assertEqual(found.open, [])
        self.assertEqual([kind for kind, _ in found.scripts], ["code", "application/json", "code"])

    def test_embeds_valid_json(self):
        data = json.loads(Structure(made_page()).scripts[1][1])
        self.assertEqual(len(data["workers"]["losses"]), STEPS)
        self.assertEqual(len(data["timeline"]), 4)

    def test_data_cannot_end_its_script(self):
        found = Structure(made_page(name="</script><script>alert(1)<!--"))
        self.assertEqual(len(found.scripts), 3)
        self.assertEqual(json.loads(found.scripts[1][1])["workers"]["program"], "</script><script>alert(1)<!--")

    def test_loads_nothing(self):
        text = made_page()
        self.assertEqual(Structure(text).loads, [])
        self.assertIn("default-src 'none'", text)
        self.assertNotIn("sourceMappingURL", text)
        for word in (r"\bfetch\(", r"XMLHttpRequest", r"\bimport\b", r"url\("):
            self.assertIsNone(re.search(word, page.asset("page.js") + page.asset("page.css")), word)

    def test_shows_what_is_no_number_as_nothing(self):
        workers, single, shadow = three(hidden_share=math.nan)
        verdict = compare.assess(workers, single, shadow)
        text = page.page(report.page_data(workers, single, shadow, verdict, trace()), CHART_STAND_IN)
        self.assertIsNone(json.loads(Structure(text).scripts[1][1])["workers"]["hidden_share"])

    def test_names_the_package_of_a_missing_chart_library(self):
        with self.assertRaisesRegex(page.PageError, "/nowhere/chart.js.*libjs-chart.js"):
            page.chart_library("/nowhere/chart.js")

    @unittest.skipUnless(os.path.exists(page.CHART_FILE), "libjs-chart.js is not installed")
    def test_holds_debians_chart_library_whole(self):
        scripts = Structure(made_page(page.chart_library(page.CHART_FILE))).scripts
        self.assertEqual(len(scripts), 3)
        self.assertIn("Chart.js v", scripts[0][1])
        self.assertGreater(len(scripts[0][1]), 100000)

    @unittest.skipUnless(shutil.which("node"), "node is not installed")
    def test_code_runs_and_makes_every_chart(self):
        scripts = [text for _, text in Structure(made_page()).scripts]
        with tempfile.NamedTemporaryFile("w", suffix=".js", encoding="utf-8") as file:
            file.write(page.asset("page_test.js").replace("/*DATA*/", json.dumps(scripts[1])))
            file.write("\n" + scripts[0] + "\n" + scripts[2] + "\nfinish();\n")
            file.flush()
            done = subprocess.run(["node", file.name], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout), {"charts": ["bar", "line", "line", "line"], "rows": 4, "sets": [5, 4, 3, 2]})


class Timeline(unittest.TestCase):
    def test_has_a_row_for_each_rank_and_bucket_in_milliseconds(self):
        rows = page.timeline(trace())
        self.assertEqual([(row["rank"], row["row"]) for row in rows],
                         [(0, "compute"), (0, "bucket 0"), (1, "compute"), (1, "bucket 0")])
        self.assertEqual([(bar["name"], bar["begin_ms"], bar["end_ms"]) for bar in rows[0]["bars"]],
                         [("forward", 0, 10), ("backward", 10, 30), ("wait", 30, 31), ("optimiser", 31, 33)])
        self.assertEqual(rows[1]["bars"][0]["args"]["bytes"], 1024)

    def test_of_an_empty_trace_is_empty(self):
        self.assertEqual(page.timeline({"traceEvents": []}), [])


class Tool(unittest.TestCase):
    def run_tool(self, records):
        with tempfile.TemporaryDirectory() as folder:
            paths = {name: os.path.join(folder, name) for name in ("workers", "single", "shadow", "trace", "chart", "out")}
            for name, content in zip(("workers", "single", "shadow", "trace"), (*records, trace())):
                with open(paths[name], "w", encoding="utf-8") as file:
                    json.dump(content, file)
            with open(paths["chart"], "w", encoding="utf-8") as file:
                file.write(CHART_STAND_IN)
            options = [word for name, path in paths.items() for word in ("--" + name, path)]
            done = subprocess.run([sys.executable, os.path.join(HERE, "report.py"), *options],
                                  capture_output=True, text=True, timeout=60, check=False)
            return done, os.path.exists(paths["out"])

    def test_prints_the_table_and_ends_well(self):
        done, written = self.run_tool(three())
        self.assertEqual((done.returncode, done.stderr, written), (0, "", True))
        self.assertIn("replicas identical: ", done.stdout)
        self.assertIn("yes (abababababababab)", done.stdout)
        self.assertIn("90.50%", done.stdout)

    def test_ends_with_one_and_says_why(self):
        done, written = self.run_tool(three(fingerprints=["ab" * 32, "ac" * 32]))
        self.assertEqual((done.returncode, written), (1, True))
        self.assertIn("FAILED: the replicas differ", done.stderr)


if __name__ == "__main__":
    unittest.main()
