#!/usr/bin/env python3
"""Makes the demonstration's report from its records, and prints the short table.

    report.py --workers FILE --single FILE --shadow FILE --trace FILE --out FILE [--chart FILE]

Exit status 1 if the training did not do what it must: accuracy, equal replicas, loss curves within the tolerance. See
compare.py for what that is, docs/demo.md for why.
"""
import argparse
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import compare  # noqa: E402
import page  # noqa: E402


def table(workers, single, verdict, out):
    curves = verdict["curves"]
    rows = [
        ("test accuracy", f"{verdict['accuracy']:.2%}   (one process {verdict['accuracy_single']:.2%})"),
        ("final loss", f"{verdict['final_loss']:.4f}   (one process {verdict['final_loss_single']:.4f})"),
        ("images a second", f"{workers['images_per_second']:,.0f}   (one process {single['images_per_second']:,.0f})"),
        ("speed-up", f"{verdict['speed_up']:.2f} with {workers['workers']} workers"),
        ("communication hidden", f"{workers['hidden_share']:.1%} of {1000 * workers['communication_s']:.2f} ms a step"),
        ("loss curves", f"differ by {curves['largest']:.1e} at most over {curves['steps']} steps, "
                        f"{'within' if curves['inside'] else 'NOT within'} the tolerance"),
        ("  tolerance", f"{verdict['step_bound']:.1e} of the loss + {compare.FACTOR:.0f} x what f32 rounding does to one "
                        f"process: {verdict['tolerance'][0]:.1e} at first, {curves['tolerance_largest']:.1e} at last"),
        ("replicas identical", f"{'yes' if verdict['identical'] else 'no'} ({verdict['fingerprint'][:16]})"),
        ("report", f"{out}, trace.json beside it"),
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"  {name + ':':<{width + 1}} {text}" for name, text in rows)


def read_trace(path):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError) as error:
        raise compare.RecordError(f"{path}: {error}") from error


def page_data(workers, single, shadow, verdict, trace):
    return {
        "workers": workers, "single": single, "shadow": shadow, "verdict": verdict, "timeline": page.timeline(trace),
        "accuracy_min": compare.ACCURACY_MIN, "speed_up_wanted": compare.SPEED_UP_WANTED,
        "factor": compare.FACTOR, "lead": compare.LEAD,
    }


def arguments():
    parser = argparse.ArgumentParser(description="Makes the demonstration's report.")
    for name in ("workers", "single", "shadow", "trace", "out"):
        parser.add_argument("--" + name, required=True)
    parser.add_argument("--chart", default=page.CHART_FILE)
    return parser.parse_args()


def main():
    asked = arguments()
    try:
        workers, single, shadow = (compare.read_record(path) for path in (asked.workers, asked.single, asked.shadow))
        verdict = compare.assess(workers, single, shadow)
        text = page.page(page_data(workers, single, shadow, verdict, read_trace(asked.trace)), page.chart_library(asked.chart))
    except (compare.RecordError, page.PageError) as error:
        sys.exit(f"report: {error}")
    with open(asked.out, "w", encoding="utf-8") as file:
        file.write(text)
    print(table(workers, single, verdict, asked.out))
    for warning in verdict["warnings"]:
        print(f"  note: {warning}")
    for failure in verdict["failures"]:
        print(f"  FAILED: {failure}", file=sys.stderr)
    return 1 if verdict["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
