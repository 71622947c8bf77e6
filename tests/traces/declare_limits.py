#!/usr/bin/env python3
"""Adds a column `time_limit` to a trace of Philly's form: the run time, in seconds, that each job declares at most.

`declare_limits.py HOW TRACE > OUT`, with HOW one of

- `exact`: the run time that the job then has
- `rounded`: that, rounded up to a time that people ask for (15 min, 1 h, 4 h, 12 h, 1, 2, 4, 7, 14, 30, 60, 120 days)
- `half`: as `rounded`, by half of the jobs at random; the others declare nothing
- `triple`: three times the run time
"""

import csv
import math
import random
import sys

HOUR, DAY = 3600, 86_400
ASKED_FOR = [HOUR // 4, HOUR, 4 * HOUR, 12 * HOUR, *(DAY * days for days in (1, 2, 4, 7, 14, 30, 60, 120))]


def rounded(seconds):
    return next((limit for limit in ASKED_FOR if limit >= seconds), seconds)


def declared(how, seconds, draw):
    declares = {
        "exact": lambda: seconds,
        "rounded": lambda: rounded(seconds),
        "half": lambda: rounded(seconds) if draw.random() < 0.5 else "",
        "triple": lambda: 3 * seconds,
    }
    return declares[how]()


def main():
    how, path = sys.argv[1:]
    draw = random.Random(7)
    with open(path, newline="") as trace:
        rows = csv.DictReader(trace)
        out = csv.DictWriter(sys.stdout, [*rows.fieldnames, "time_limit"], lineterminator="\n")
        out.writeheader()
        for row in rows:
            # A job that took no time still declares a second.
            seconds = max(1, math.ceil(float(row["duration"])))
            out.writerow({**row, "time_limit": declared(how, seconds, draw)})


if __name__ == "__main__":
    main()
