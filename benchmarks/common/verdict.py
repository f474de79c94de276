"""What rounds show: their spread, whether a goal is met, whether two sides did the same work.

A goal is met or missed only where the figure is further from it than the rounds are from each
other, and further than the noise floor: the difference that the same thing shows to itself.
Everything else is undecided, and so is a figure that is not possible.
"""
import math
import statistics

FEWEST = 3          # rounds without which nothing is decided
QUARTILES_FROM = 5  # with fewer values the spread is that of all
MET, MISSED, UNDECIDED = "met", "missed", "undecided"


def spread(values):
    """{"n", "min", "q1", "median", "q3", "max"}; of no values only "n"."""
    if not values:
        return {"n": 0}
    ordered = sorted(values)
    quartiles = (statistics.quantiles(ordered, n=4, method="inclusive") if len(ordered) > 1
                 else ordered * 3)
    return {"n": len(ordered), "min": ordered[0], "q1": quartiles[0], "median": quartiles[1],
            "q3": quartiles[2], "max": ordered[-1]}


def width(values):
    """How far values are apart: quartiles, or of few values all of them."""
    if len(values) < 2:
        return 0.0
    found = spread(values)
    return (found["q3"] - found["q1"] if len(values) >= QUARTILES_FROM
            else found["max"] - found["min"])


def median_interval(values):
    """(low, high) that hold the median with 95 % confidence, from the order of the values alone; of fewer
    than 6 values the least and the most."""
    ordered, n = sorted(values), len(values)
    below, chance = 0, 0.5 ** n  # chance: that at most `below` of n values lie below the median
    while 2 * chance <= 0.05:
        below += 1
        chance += math.comb(n, below) * 0.5 ** n
    at = max(below - 1, 0)
    return ordered[at], ordered[n - 1 - at]


def apart_of(values, goal, of_median):
    """Why the values are too far apart to decide, or None."""
    difference = abs(statistics.median(values) - goal)
    if of_median:
        low, high = median_interval(values)
        return (f"the median lies within {low:.4g} and {high:.4g} (95 %), which hold the goal"
                if low <= goal <= high else None)
    if width(values) > difference:
        return f"the spread {width(values):.3g} exceeds the difference {difference:.3g} to the goal"
    return None


def why_undecided(values, goal, noise, least, most, of_median):
    """None where the values decide."""
    if len(values) < FEWEST:
        return f"{len(values)} undisturbed rounds, {FEWEST} are needed"
    median = statistics.median(values)
    if least is not None and median < least:
        return f"{median:.4g} is below {least:g}, which is not possible"
    if most is not None and median > most:
        return f"{median:.4g} is above {most:g}, which is not possible"
    if apart := apart_of(values, goal, of_median):
        return apart
    difference = abs(median - goal)
    if noise > difference:
        return f"the noise floor {noise:.3g} exceeds the difference {difference:.3g} to the goal"
    return None


def verdict(values, goal, at_most=False, noise=0.0, least=None, most=None, of_median=False):
    """Whether the median reaches `goal`: at least that, or at most.

    noise: the noise floor in the unit of the values; least, most: what is possible at least, at most.
    of_median: of many values, the interval that holds their median decides, not their own spread.
    """
    why = why_undecided(values, goal, noise, least, most, of_median)
    found = {"goal": goal, "at_most": at_most, "noise_floor": round(noise, 6) if math.isfinite(noise) else None,
             **{key: round(value, 6) for key, value in spread(values).items()}}
    if why:
        return {**found, "verdict": UNDECIDED, "why": why}
    reached = found["median"] <= goal if at_most else found["median"] >= goal
    return {**found, "verdict": MET if reached else MISSED}


def noise_floor(pairs, relative=False):
    """The median difference between two measurements of the same thing, one after the other."""
    apart = [abs(a - b) / (abs(a + b) / 2) if relative else abs(a - b) for a, b in pairs]
    return statistics.median(apart) if apart else 0.0


def noise_of_median(pairs):
    """What the median difference of this number of pairs can be of the same thing measured twice: the bound of
    its 95 % interval that is further from 0. It falls with the number of pairs."""
    if not pairs:
        return math.inf
    return max(map(abs, median_interval([a - b for a, b in pairs])))


def line(name, found):
    """A verdict as text."""
    sign = "<=" if found["at_most"] else ">="
    if not found["n"]:
        return f"{name}: not measured (goal {sign} {found['goal']:g}): undecided: {found['why']}"
    why = f": {found['why']}" if "why" in found else ""
    return (f"{name}: {found['median']:.4g} (min {found['min']:.4g}, quartiles {found['q1']:.4g} to "
            f"{found['q3']:.4g}, max {found['max']:.4g}; goal {sign} {found['goal']:g}): "
            f"{found['verdict']}{why}")


# ------------------------------------------------------------------------------------ equal work

def same_input(sides):
    """Raise when the sides did not get the same. sides: {name: texts or count}"""
    (first, wanted), *others = sides.items()
    for name, got in others:
        if got != wanted:
            raise ValueError(f"unequal work: {name} and {first} differ: {shown(got)} and "
                             f"{shown(wanted)}")


def shown(value):
    return f"{len(value)} texts" if isinstance(value, (list, tuple)) else value


def cosine(a, b):
    dot, aa, bb = (sum(x * y for x, y in zip(p, q)) for p, q in ((a, b), (a, a), (b, b)))
    return dot / math.sqrt(aa * bb) if aa > 0 and bb > 0 else 0.0


def least_cosine(rows, reference):
    """The worst cosine of rows with those of the reference; 0 where they do not correspond."""
    if len(rows) != len(reference) or not len(rows):
        return 0.0
    if any(len(a) != len(b) for a, b in zip(rows, reference)):
        return 0.0
    return min(cosine(a, b) for a, b in zip(rows, reference))


# Bounds of a cosine with float32, under which another computation was measured. Dynamic int8 of
# ONNX Runtime keeps 0.97 on short texts; an engine of another model is far below.
MIN_COSINE = {"fp32": 0.9999, "bf16": 0.995, "int8": 0.94}
