"""What the records of a demonstration say: whether the loss curves agree, and the figures to show. Pure functions.

A record is the JSON object that fashion_mnist --curve writes.

The tolerance of the loss curves. N workers and one process compute the same sums in another order, so every step adds
rounding errors of f32, and training amplifies those of all earlier steps. How much is a property of the network and its
data that no formula gives, so it is measured: a third run, the shadow, is the single process again, with the images of
every batch in reverse. In exact arithmetic it is the same run; its distance from the single process is rounding and nothing
else. The distance of the N workers has to be of that size:

    tolerance(t) = step_bound * |loss(t)| + FACTOR * max over s <= t + LEAD of |shadow(s) - single(s)|

step_bound is what rounding may do within one step, where nothing is amplified yet: 6 * sqrt(CHAIN) * u, with u = 2^-24
the unit roundoff of f32 and CHAIN the additions on the longest path from an image to the loss. Rounding errors of n
additions grow with sqrt(n), and stay below 6 * sqrt(n) * u for all practical purposes (Higham and Mary, A New Approach to
Probabilistic Rounding Error Analysis, SIAM J. Sci. Comput. 41, 2019, theorem 2.4: the factor 6 fails once in 10^7).
FACTOR and LEAD allow for the shadow being one sample of the amplified noise and the N workers another.
"""
import json
import math

UNIT_ROUNDOFF = 2.0 ** -24
# Convolutions of 3x3x1 and 3x3x32, linear layers of 3136 and 128 inputs, and the mean over the batch.
CHAIN_OF_LAYERS = 9 + 288 + 3136 + 128
FACTOR = 4.0
LEAD = 10  # steps

ACCURACY_MIN = 0.88
SPEED_UP_WANTED = 1.6
FINAL_STEPS = 50  # the final loss is the mean of so many


class RecordError(Exception):
    """A record that cannot be used; names the file and what is wrong with it."""


def read_record(path):
    try:
        with open(path, encoding="utf-8") as file:
            record = json.load(file)
    except (OSError, ValueError) as error:
        raise RecordError(f"{path}: {error}") from error
    for key in ("losses", "evaluations", "images_per_second", "workers", "batch_per_worker", "fingerprints"):
        if key not in record:
            raise RecordError(f"{path}: no '{key}', expected the record of a training run")
    if not record["losses"] or not all(isinstance(loss, (int, float)) for loss in record["losses"]):
        raise RecordError(f"{path}: 'losses' is empty or holds what is no number")
    return record


def global_batch(record):
    return record["workers"] * record["batch_per_worker"]


def step_bound(batch):
    """Largest relative error of one step's loss by rounding alone."""
    return 6 * math.sqrt(CHAIN_OF_LAYERS + batch) * UNIT_ROUNDOFF


def tolerances(single, shadow, batch):
    """The tolerance at each step that both curves have."""
    steps = min(len(single), len(shadow))
    bound = step_bound(batch)
    distance = [abs(a - b) for a, b in zip(single, shadow)]
    result, largest, seen = [], 0.0, 0
    for step in range(steps):
        while seen < min(steps, step + LEAD + 1):
            largest = max(largest, distance[seen])
            seen += 1
        result.append(bound * abs(single[step]) + FACTOR * largest)
    return result


def compare_curves(workers, single, tolerance):
    """The largest difference, its step, and where the difference comes closest to (or most exceeds) the tolerance."""
    steps = min(len(workers), len(single), len(tolerance))
    differences = [abs(a - b) for a, b in zip(workers[:steps], single)]
    ratios = [d / t for d, t in zip(differences, tolerance)]
    # A difference that is no number compares with nothing: it is out of any tolerance.
    inside = steps > 0 and all(ratio <= 1 for ratio in ratios)
    tightest = max(range(steps), key=lambda s: ratios[s] if ratios[s] == ratios[s] else math.inf) if steps else 0
    return {
        "steps": steps,
        "differences": differences,
        "largest": max(differences, default=math.nan),
        "tightest_step": tightest,
        "tightest_ratio": ratios[tightest] if steps else math.nan,
        "tolerance_largest": max(tolerance[:steps], default=math.nan),
        "inside": inside,
    }


def mean(values):
    return sum(values) / len(values) if values else math.nan


def assess(workers, single, shadow):
    """Everything that the table and the page show."""
    if global_batch(workers) != global_batch(single) or workers["seed"] != single["seed"]:
        raise RecordError(
            f"{workers['workers']} workers with batches of {workers['batch_per_worker']} and one with "
            f"{single['batch_per_worker']}, seeds {workers['seed']} and {single['seed']}: not the same training")
    tolerance = tolerances(single["losses"], shadow["losses"], global_batch(single))
    curves = compare_curves(workers["losses"], single["losses"], tolerance)
    fingerprints = workers["fingerprints"]
    identical = len(fingerprints) == workers["workers"] and len(set(fingerprints)) == 1
    accuracy = workers["evaluations"][-1]["accuracy"]
    speed_up = workers["images_per_second"] / single["images_per_second"] if single["images_per_second"] else math.nan
    failures = []
    if not accuracy >= ACCURACY_MIN:
        failures.append(f"test accuracy {accuracy:.2%} is below {ACCURACY_MIN:.0%}")
    if not identical:
        failures.append("the replicas differ")
    if not curves["inside"]:
        failures.append(f"the loss curves differ at step {curves['tightest_step'] + 1} by "
                        f"{curves['tightest_ratio']:.1f} times the tolerance")
    if len(workers["losses"]) != len(single["losses"]):
        failures.append(f"{len(workers['losses'])} steps with {workers['workers']} workers, "
                        f"{len(single['losses'])} with one")
    return {
        "accuracy": accuracy,
        "accuracy_single": single["evaluations"][-1]["accuracy"],
        "final_loss": mean(workers["losses"][-FINAL_STEPS:]),
        "final_loss_single": mean(single["losses"][-FINAL_STEPS:]),
        "speed_up": speed_up,
        "identical": identical,
        "fingerprint": fingerprints[0] if fingerprints else "",
        "tolerance": tolerance,
        "step_bound": step_bound(global_batch(single)),
        "curves": curves,
        "failures": failures,
        "warnings": [] if speed_up >= SPEED_UP_WANTED else [
            f"speed-up {speed_up:.2f} is below {SPEED_UP_WANTED}: are all {workers['workers']} cores free?"],
    }
