#!/usr/bin/env python3
"""Judges what Cargo.lock names: known advisories, licences, sources and banned packages, by the rules of deny.toml.

    tests/dependencies/check.py               judge the workspace; says what is wrong, and exits with 1 then
    tests/dependencies/check.py --renew DIR   take what a checkout of RustSec's database says of our packages

It needs Python 3.11 and cargo, and no network: RustSec's advisories on the packages of Cargo.lock lie beside it in
advisories.json, with the day of the database. A package that was not looked up then is an error, not a pass.
"""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SNAPSHOT = HERE / "advisories.json"
REGISTRY = "registry+https://github.com/rust-lang/crates.io-index"


# Versions, by the rules of Cargo.

def version(text):
    """A version as something that can be compared: numbers, then whether it is a release, then its pre-release."""
    core, _, pre = text.split("+")[0].partition("-")
    numbers = tuple(int(part) for part in core.split("."))
    marks = tuple((0, int(p), "") if p.isdigit() else (1, 0, p) for p in pre.split(".")) if pre else ()
    return numbers + (0,) * (3 - len(numbers)), not pre, marks


def caret(parts):
    """The first version that is no longer compatible with these numbers."""
    for at, part in enumerate(parts):
        if part or at == len(parts) - 1:
            return tuple(parts[:at]) + (part + 1,) + (0,) * (2 - at)
    raise ValueError("no version")


def meets_one(found, wanted):
    match = re.fullmatch(r"(>=|<=|>|<|=|\^|~)?\s*(\d+(?:\.\d+){0,2}(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?)", wanted)
    if not match:
        raise ValueError(f"`{wanted}` is no requirement that is understood here")
    sign, text = match[1] or "^", match[2]
    base = version(text)
    parts = [int(part) for part in re.split(r"[-+]", text)[0].split(".")]
    if sign == "^":
        return base <= found and found[0] < caret(parts)
    if sign == "~":
        above = parts[:2] if len(parts) > 1 else parts
        return base <= found and found[0] < tuple(above[:-1]) + (above[-1] + 1,) + (0,) * (3 - len(above))
    if sign == "=" and len(parts) < 3:
        return found[0][: len(parts)] == tuple(parts)
    return {">=": found >= base, "<=": found <= base, ">": found > base, "<": found < base, "=": found == base}[sign]


def meets(found, requirement):
    """Whether a version meets a requirement such as `>= 1.2.3, < 2`."""
    return all(meets_one(version(found), one.strip()) for one in requirement.split(","))


# Licences: the part of SPDX expressions that packages use.

def licensed(expression, allowed):
    """Whether what is allowed is enough for an expression. Cargo once wrote `/` for OR."""
    tokens = re.findall(r"\(|\)|[^\s()]+", expression.replace("/", " OR "))
    at = 0

    def peek():
        return tokens[at] if at < len(tokens) else None

    def take():
        nonlocal at
        at += 1
        return tokens[at - 1]

    def one():
        if peek() is None:
            raise ValueError(f"`{expression}` ends too early")
        if peek() == "(":
            take()
            inside = any_of()
            if peek() != ")":
                raise ValueError(f"`{expression}` has no end")
            take()
            return inside
        name = take()
        if peek() == "WITH":
            take()
            name += f" WITH {take()}"
        return name in allowed

    def all_of():
        found = one()
        while peek() == "AND":
            take()
            found = one() and found
        return found

    def any_of():
        found = all_of()
        while peek() == "OR":
            take()
            found = all_of() or found
        return found

    found = any_of()
    if peek() is not None:
        raise ValueError(f"`{expression}` is not understood from `{peek()}` on")
    return found


# The judge.

def judge(lock, packages, rules, snapshot):
    """What is wrong, as sentences. `lock` are Cargo.lock's packages, `packages` those of `cargo metadata`."""
    wrong = []
    outside = [package for package in lock if "source" in package]
    known = set(snapshot["looked_up"])
    ignored = set(rules["advisories"].get("ignore", []))
    for package in outside:
        name, found = package["name"], package["version"]
        if package["source"] != REGISTRY:
            wrong.append(f"{name} {found} comes from {package['source']}: only the registry of crates.io is allowed")
        elif "checksum" not in package:
            wrong.append(f"{name} {found} has no checksum in Cargo.lock")
        if name not in known:
            wrong.append(f"{name} was not looked up in RustSec's database of {snapshot['date']}: run check.py --renew")
    used = set()
    for advisory in snapshot["advisories"]:
        safe = advisory["patched"] + advisory["unaffected"]
        hit = [p for p in outside if p["name"] == advisory["package"] and not any(meets(p["version"], it) for it in safe)]
        if hit and advisory["id"] in ignored:
            used.add(advisory["id"])
        elif hit:
            versions = ", ".join(p["version"] for p in hit)
            wrong.append(f"{advisory['package']} {versions}: {advisory['id']} ({advisory['kind']}): {advisory['title']}")
    wrong += [f"deny.toml ignores {it}, which concerns nothing here" for it in sorted(ignored - used)]
    banned = {ban["name"] for ban in rules["bans"].get("deny", [])}
    wrong += [f"{p['name']} {p['version']} is banned by deny.toml" for p in lock if p["name"] in banned]
    allowed = set(rules["licenses"]["allow"])
    for package in packages:
        if package["source"] is None:
            continue
        what = f"{package['name']} {package['version']}"
        expression = package["license"]
        if not expression:
            wrong.append(f"{what} names no licence")
        elif not licensed(expression, allowed):
            wrong.append(f"{what} is licensed as `{expression}`, which deny.toml does not allow")
    return wrong


def locked():
    return tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]


def metadata():
    """Every package that Cargo.lock names, for whatever platform."""
    command = ["cargo", "metadata", "--format-version=1", "--locked", "--offline"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if said.returncode:
        # Packages for other platforms may not have been downloaded yet.
        said = subprocess.run(command[:-1], cwd=ROOT, capture_output=True, text=True)
    if said.returncode:
        sys.exit(f"cargo metadata: {said.stderr.strip()}")
    return json.loads(said.stdout)["packages"]


# Renewal.

def advisory(path):
    text = path.read_text()
    head, body = re.match(r"```toml\n(.*?)\n```\n(.*)", text, re.DOTALL).groups()
    said = tomllib.loads(head)
    about = said["advisory"]
    if "withdrawn" in about:
        return None
    title = next((line[2:].strip() for line in body.splitlines() if line.startswith("# ")), about["id"])
    return {
        "id": about["id"],
        "package": about["package"],
        "kind": about.get("informational", "vulnerability"),
        "title": title,
        "patched": said.get("versions", {}).get("patched", []),
        "unaffected": said.get("versions", {}).get("unaffected", []),
    }


def renew(database):
    git = lambda *args: subprocess.run(["git", "-C", database, *args], check=True, capture_output=True, text=True).stdout.strip()
    names = sorted({package["name"] for package in locked() if "source" in package})
    found = []
    for name in names:
        for path in sorted(Path(database, "crates", name).glob("*.md")):
            if said := advisory(path):
                found.append(said)
    snapshot = {
        "from": "https://github.com/rustsec/advisory-db (CC0-1.0)",
        "commit": git("rev-parse", "HEAD"),
        "date": git("log", "-1", "--format=%cs"),
        "looked_up": names,
        "advisories": found,
    }
    SNAPSHOT.write_text(json.dumps(snapshot, indent=1) + "\n")
    print(f"{len(found)} advisories on {len(names)} packages, as of {snapshot['date']}")


def main():
    if len(sys.argv) == 3 and sys.argv[1] == "--renew":
        return renew(sys.argv[2])
    if len(sys.argv) > 1:
        sys.exit(__doc__)
    rules = tomllib.loads((ROOT / "deny.toml").read_text())
    snapshot = json.loads(SNAPSHOT.read_text())
    lock = locked()
    wrong = judge(lock, metadata(), rules, snapshot)
    for line in wrong:
        print(f"error: {line}", file=sys.stderr)
    if wrong:
        sys.exit(1)
    outside = sum("source" in package for package in lock)
    print(f"{outside} packages: no advisory of {snapshot['date']} that is not accepted, licences, sources and bans as deny.toml says")


if __name__ == "__main__":
    main()
