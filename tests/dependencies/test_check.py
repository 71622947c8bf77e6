"""That check.py finds what it is there for: `python3 -m unittest discover tests/dependencies`."""

import unittest

from check import REGISTRY, judge, licensed, meets

RULES = {
    "advisories": {"ignore": []},
    "bans": {"deny": [{"name": "openssl-sys"}]},
    "licenses": {"allow": ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"]},
}
ADVISORY = {
    "id": "RUSTSEC-0000-0001", "package": "a", "kind": "vulnerability", "title": "it breaks",
    "patched": [">= 1.2.3", "^1.0.9"], "unaffected": ["< 1.0.0"],
}


def wrong(version="1.2.3", name="a", source=REGISTRY, licence="MIT", looked_up=("a", "openssl-sys"), ignore=(), local=False):
    package = {"name": name, "version": version}
    if not local:
        package |= {"source": source, "checksum": "0"}
    rules = RULES | {"advisories": {"ignore": list(ignore)}}
    snapshot = {"date": "2026-01-01", "looked_up": list(looked_up), "advisories": [ADVISORY]}
    told = {"name": name, "version": version, "license": licence, "source": None if local else source}
    return judge([package], [told], rules, snapshot)


class Judge(unittest.TestCase):
    def test_what_is_right_passes(self):
        for version in ["1.2.3", "2.0.0", "0.9.9", "1.0.9", "1.1.0"]:
            self.assertEqual(wrong(version), [], version)
        self.assertEqual(wrong("0.1.0", name="own", local=True, licence=None), [])

    def test_each_wrong_is_found(self):
        for version in ["1.0.0", "1.0.8", "1.0.9-rc.1"]:
            self.assertIn("RUSTSEC-0000-0001", wrong(version)[0], version)
        self.assertEqual(wrong("1.0.0", ignore=["RUSTSEC-0000-0001"]), [])
        self.assertIn("concerns nothing", wrong("1.2.3", ignore=["RUSTSEC-0000-0001"])[0])
        self.assertIn("not looked up", wrong("1.2.3", name="b")[0])
        self.assertIn("comes from", wrong(source="git+https://github.com/a/a#1")[0])
        self.assertIn("banned", wrong(name="openssl-sys")[0])
        self.assertIn("GPL-3.0", wrong(licence="GPL-3.0")[0])
        self.assertIn("no licence", wrong(licence=None)[0])

    def test_requirements_are_cargo_s(self):
        for found, requirement in [
            ("1.2.9", "^1.2.3"), ("0.2.5", "^0.2.3"), ("0.0.3", "^0.0.3"), ("1.9.0", "1"), ("1.2.9", "~1.2.3"),
            ("1.2.3", "=1.2.3"), ("1.2.7", "=1.2"), ("1.5.0", ">= 1.2, < 2"), ("1.0.0-rc.1", "< 1.0.0"),
            ("1.0.0-rc.10", "> 1.0.0-rc.9"),
        ]:
            self.assertTrue(meets(found, requirement), f"{found} {requirement}")
        for found, requirement in [
            ("2.0.0", "^1.2.3"), ("0.3.0", "^0.2.3"), ("0.0.4", "^0.0.3"), ("2.0.0", "1"), ("1.3.0", "~1.2.3"),
            ("2.0.0", ">= 1.2, < 2"), ("1.0.0-rc.1", ">= 1.0.0"),
        ]:
            self.assertFalse(meets(found, requirement), f"{found} {requirement}")
        with self.assertRaises(ValueError):
            meets("1.0.0", ">= one")

    def test_expressions_are_spdx_s(self):
        allowed = RULES["licenses"]["allow"]
        for good in ["MIT", "GPL-3.0 OR MIT", "MIT/GPL-3.0", "(MIT OR GPL-3.0) AND Apache-2.0", "Apache-2.0 WITH LLVM-exception"]:
            self.assertTrue(licensed(good, allowed), good)
        for bad in ["GPL-3.0", "MIT AND GPL-3.0", "MIT WITH LLVM-exception", "(MIT AND GPL-3.0) OR BSD"]:
            self.assertFalse(licensed(bad, allowed), bad)
        for odd in ["", "(MIT", "MIT Apache-2.0", "MIT OR"]:
            with self.assertRaises(ValueError):
                licensed(odd, allowed)


if __name__ == "__main__":
    unittest.main()
