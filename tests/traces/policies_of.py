#!/usr/bin/env python3
"""Writes a pool and policies for the virtual clusters of a trace of Philly's form, as YAML.

`policies_of.py HOW TRACE > OUT`, with HOW one of

- `shares`: each virtual cluster has reserved as large a part of `--gpus` as its part of the trace's GPU-hours,
  rounded down
- `tiers`: nothing is reserved; the virtual clusters, sorted by name, have priority 0, 10 and 20 in turn

`--budget 2%` sets that of the pool for work lost by priority.
"""

import argparse
import collections
import csv

PRIORITIES = [0, 10, 20]


def gpu_hours(path):
    """GPU-hours of each virtual cluster, by name."""
    hours = collections.Counter()
    with open(path, newline="") as trace:
        for row in csv.DictReader(trace):
            hours[row["cluster"]] += float(row["duration"]) * int(row["num_gpus"]) / 3600
    return dict(sorted(hours.items()))


def shares(hours, gpus):
    """Divides GPUs in proportion to hours, rounded down."""
    return {name: int(gpus * part / sum(hours.values())) for name, part in hours.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("how", choices=["shares", "tiers"])
    parser.add_argument("trace")
    parser.add_argument("--gpus", type=int, help="GPUs to divide; needed for shares")
    parser.add_argument("--budget", help="budget of the pool for work lost by priority")
    args = parser.parse_args()
    if args.how == "shares" and args.gpus is None:
        parser.error("`shares` needs --gpus: how many GPUs to divide")
    hours = gpu_hours(args.trace)
    print("kind: pool\nname: philly")
    if args.budget:
        print(f"priority_preemption: {{budget: {args.budget}}}")
    divided = shares(hours, args.gpus) if args.how == "shares" else {}
    for place, name in enumerate(hours):
        terms = f"reserved: {{gpu: {divided[name]}}}" if divided else f"priority: {PRIORITIES[place % len(PRIORITIES)]}"
        print(f'---\nkind: policy\npool: philly\nsubject: "{name}"\n{terms}')


if __name__ == "__main__":
    main()
